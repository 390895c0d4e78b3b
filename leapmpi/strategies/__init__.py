"""Strategies, one file each, chosen by `--strategy`: STRATEGY is a sub-class of Placement
(leapmpi/engine/placement.py).

In: the context of a rank and the strategy's settings. Out: which rank trains which root at which time step, and what
ranks pass on in between.
"""
