"""Fixtures of tests that read shards of a dataset."""

from tests.dataset.conftest import folder, graph

__all__ = ["folder", "graph"]
