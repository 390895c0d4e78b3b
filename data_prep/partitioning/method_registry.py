"""The partition methods by name; loads none of them, so that `--help` stays light."""

from __future__ import annotations

from leapmpi.registry import Registry

METHODS = Registry("partition method", "data_prep.partitioning.methods")
