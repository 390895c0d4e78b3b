"""The partition methods by name; loads none of them, so that `--help` stays light."""

from __future__ import annotations

from leapmpi.registry import Registry

BALANCES = ("training", "vertices", "edges", "work")
"""What parts may be balanced by besides vertices, by methods with WEIGHTS; the first is the default of all."""

METHODS = Registry("partition method", "data_prep.partitioning.methods")
