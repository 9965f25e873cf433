"""Chains: the outputs for one value at growing epsilons, drawn backward from the strongest.

A mechanism takes one of these, whose thresholds are integers and whose levels are certified:

- :func:`~mechanisms.chains.symbols.symbol_chain`: keeps a symbol, or takes any other with the same
  probability;
- :func:`~mechanisms.chains.finite.finite_chain`: any channel of at most 1024 inputs and outputs,
  given as exact fractions, which :func:`~mechanisms.chains.thresholds.rounded` makes integers;
- :class:`~mechanisms.chains.bits.BitChain`: a vector of bits, each flipped on its own;
- :class:`~mechanisms.chains.supporting.SupportChain`: every output supports some inputs, all of
  them equally many outputs; of subsets and of Hadamard codes;
- :class:`~mechanisms.chains.packed.PackedChain`: several answers of one of the first two.
"""
