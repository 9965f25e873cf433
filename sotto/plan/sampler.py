"""A plan's sampler integers, for clients that do not compute them (``docs/spec/protocol.md``).

A device compares random words with integers that follow from the plan. To compute them takes
exponentials of 60 digits and exact fractions. A client in another language may read them instead,
from this document, which is made where the plan is compiled.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from mechanisms.chains.bits import BitChain
from mechanisms.chains.chain import Chain
from mechanisms.chains.output_sets import HadamardChain
from mechanisms.chains.packed import PackedChain
from mechanisms.chains.subsets import SubsetChain
from mechanisms.chains.symbols import StepChain, SymbolDraw
from mechanisms.top_item.permute_and_flip import PermuteAndFlip
from sotto.plan.compiled import canonical
from sotto.plan.metric import CompiledMetric

if TYPE_CHECKING:
    from mechanisms.chains.symbols import Step
    from sotto.plan.compiled import CompiledPlan

#: The format of the document.
FORMAT = 1


def sampler_json(plan: CompiledPlan) -> bytes:
    """Return the document of a plan, in canonical form."""
    return canonical(sampler_document(plan))


def sampler_document(plan: CompiledPlan) -> dict[str, Any]:
    """Return the integers and certified amounts of every metric; integers of 64 bits are text."""
    return {
        "format": FORMAT,
        "fingerprint": plan.fingerprint_hex,
        "metrics": [metric_document(metric) for metric in plan.metrics],
    }


def metric_document(metric: CompiledMetric) -> dict[str, Any]:
    """Return the integers of one metric; amounts are in micro-epsilon, weakest level first."""
    mechanism = metric.mechanism
    document: dict[str, Any] = {
        "name": metric.name,
        "certified": [mechanism.certified(level) for level in range(mechanism.levels)],
        "width": mechanism.payload_width,
        "chain": _integers(mechanism.chain),
    }
    if isinstance(mechanism, PermuteAndFlip):
        # The first draw selects an item by these integers; the others are for the weaker levels.
        document["chain"]["draws"][0] = {"accept": list(map(str, mechanism.table))}
    return document


def _integers(chain: Chain) -> dict[str, Any]:
    """Return what a chain compares random words with, the strongest level first, as it is drawn."""
    if isinstance(chain, PackedChain):
        return {
            "kind": "answers",
            "answers": chain.answers,
            "bits": chain.bits,
            "single": _integers(chain.single),
        }
    if isinstance(chain, BitChain):
        ladders = [
            {
                "one": str(each.one),
                "zero": str(each.zero),
                "flips": [str(flip) for flip in reversed(each.flips)],
            }
            for each in chain.ladders
        ]
        return {"kind": "bits", "width": chain.width, "ladders": ladders}
    if isinstance(chain, StepChain):
        draws = [chain.strongest, *reversed(chain.steps)]
        return {"kind": "symbols", "size": chain.size, "draws": list(map(_draw, draws))}
    if isinstance(chain, SubsetChain):
        shape = {"kind": "subset", "width": chain.width, "size": chain.k}
    elif isinstance(chain, HadamardChain):
        shape = {"kind": "hadamard", "blocks": chain.blocks, "order": chain.order}
    else:
        raise TypeError(f"there is no description of {type(chain).__name__}")
    keeps = [str(keep) for keep in reversed(chain.keeps)]
    return {**shape, "threshold": str(chain.threshold), "keeps": keeps}


def _draw(draw: Step) -> dict[str, Any]:
    """Return a draw's integers; of rows, how often each follows another."""
    if isinstance(draw, SymbolDraw):
        return {"keep": str(draw.keep), "other": str(draw.other)}
    return {
        "rows": [
            [[str(weight), len(list(run))] for weight, run in groupby(row)] for row in draw.weights
        ]
    }
