"""Chains: the outputs for one value at growing epsilons, drawn backward from the strongest."""
