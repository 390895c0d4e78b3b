"""Merge rules: the choice of dropped time steps of a ring, and of new steps for their roots. One file per rule.

`MEMBER` is a MergeRule (leapmpi/plan/root_assignment.py) of a pure function merge(roots: RootAssignment, time_steps,
key: DrawKey). It returns the kept steps (int64[time_steps], ascending) and the step of each root (int64[roots], one of
the kept steps). A root stays on its rank. With synchronous updates the gradient is the same for any model.
"""
