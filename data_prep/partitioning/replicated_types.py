"""Small types of vertices, whose rows every rank can hold: recorded with a dataset, for training on typed graphs."""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.sparse_features import row_bytes
from leapmpi.errors import ConfigError

_LEARNED_BYTES = 1024
"""Bytes of a row of a type without features, whose rows are learned: 256 columns of float32."""

_SHARE = 0.01
"""Of the rows of a part, on average: types below are replicated unless a size is given."""


def replicated_types(graph: Graph, parts: int, below: int | None) -> list[str]:
    """List the types of a typed graph whose rows take less than `below` bytes; None stands for 1 % of a part's rows.

    Empty for a plain graph. Raises ConfigError where a size is given for one.
    """
    if graph.typed is None:
        if below is not None:
            raise ConfigError("--replicate-below: the graph has no types of vertices; leave the flag out")
        return []
    sizes = {}
    counts = np.diff(graph.typed.offsets).tolist()
    for each, features, count in zip(graph.typed.types.vertices, graph.typed.features, counts, strict=True):
        sizes[each.name] = count * (_LEARNED_BYTES if features is None else row_bytes(features))
    limit = _SHARE * sum(sizes.values()) / parts if below is None else below
    return [name for name, size in sizes.items() if size < limit]
