"""The partition methods by name; loads none of them, so that `--help` stays light."""

from __future__ import annotations

from leapmpi.registry import Registry

BALANCES = ("training", "vertices", "edges", "work")
"""Balance criteria besides vertices, for methods with WEIGHTS; the first is the default of all."""

METHODS = Registry("partition method", "data_prep.partitioning.methods")
