"""Strategies, one module each, chosen by `--strategy`; `MEMBER` is a Strategy (leapmpi/engine/placement.py).

In: the context of a rank and the strategy's settings. Out: which rank trains which root at which time step, and what
ranks pass on in between.
"""
