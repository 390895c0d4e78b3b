"""The part of `leapmpi predict` about pairs: which are named, their scores, and the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.dataset.named_vertices import read_vertices
from leapmpi.dataset.names_of_vertices import VertexNames
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.task_rows import RowTexts
from leapmpi.errors import DataError
from leapmpi.inference.output.raw_files import Shape
from leapmpi.inference.output.words import class_names
from leapmpi.inference.prediction.pair_scores import Ends, best_partners, find_ends, flat_partners, pair_scores
from leapmpi.inference.prediction.prediction_request import PredictionRequest
from leapmpi.inference.prediction.scores_file import PairTable
from leapmpi.sampling.sharded.topology_shard import TopologyShard, original_ids

if TYPE_CHECKING:
    from leapmpi.comm.world import World
    from leapmpi.exchange.context import Loaded


@dataclass(frozen=True)
class PredictionJob:
    """One prediction: the request, the data and the model; names of vertices, and facts for the file."""

    request: PredictionRequest
    dataset: Dataset
    loaded: Loaded
    world: World
    names: VertexNames | None
    facts: dict[str, Any]
    kind: int | None
    """The number of the type of vertices in a typed graph, whose ids are then those within the type."""
    texts: RowTexts | None = None
    """Keys and times of the new rows of a task table, if these are predicted."""


@dataclass(frozen=True)
class NamedPairs:
    """Pairs to score, or vertices whose partners are ranked: original ids named int64[k, 2] or int64[k, 1].

    computed: int64, original ids of the vertices to embed; None for all. relation: its number in a typed graph.
    """

    named: np.ndarray
    ends: Ends
    computed: np.ndarray | None
    relation: int | None


def named_pairs(job: PredictionJob) -> NamedPairs:
    """Read what the request names. Raises DataError. Collective."""
    request, world, ctx = job.request, job.world, job.loaded.ctx
    relation = world.on_all(lambda: request.relation_of(job.dataset))
    if (path := request.pairs) is not None:
        named, where = world.on_all(lambda: read_vertices(path, 2, job.names, "--pairs")), f"--pairs {path}"
    else:
        wanted, where = world.on_all(lambda: request.wanted(job.dataset, job.names)), f"--vertices {request.vertices}"
        if wanted is None:
            wanted = world.on_all(lambda: np.sort(original_ids(job.dataset, np.arange(job.dataset.vertices))))
            if (types := job.dataset.types) is not None and relation is not None:
                wanted = wanted[types.of_original(wanted) == types.ends[relation, 0]]
        named = wanted[:, None]
    world.on_all(lambda: _check_types(job.dataset, named, relation, where))
    ends = find_ends(ctx, own_ids(job.loaded), named.reshape(-1), where)
    return NamedPairs(named, ends, None if request.top else np.unique(named), relation)


def _check_types(dataset: Dataset, named: np.ndarray, relation: int | None, where: str) -> None:
    """Raise DataError where an end in `named` (int64[k, 1 or 2], original ids) is not of the types of `relation`."""
    types = dataset.types
    if types is None or relation is None:
        return
    wrong = types.of_original(named) != types.ends[relation, : named.shape[1]]
    if len(rows := np.flatnonzero(wrong.any(axis=1))):
        raise DataError(
            f"{where}: entry {rows[0]} has an end that is not of the types of relation {types.relations[relation]}; "
            "give names of vertices, or original ids, which count the vertices of all types in the order of info"
        )


def write_pairs(job: PredictionJob, pairs: NamedPairs, embeddings: np.ndarray) -> Shape:
    """Score pairs by the `embeddings` of this rank's vertices, and write the file. Collective."""
    request, ctx, shard, ends = job.request, job.loaded.ctx, job.loaded.topology, pairs.ends
    assert isinstance(shard, TopologyShard), "each rank holds its own lists alone"
    if request.top:
        partners = best_partners(ctx, shard, ends.ids, embeddings, request.top, pairs.relation)
        table = PairTable(*flat_partners(pairs.named[:, 0], partners), None)
    else:
        scores = pair_scores(ctx, ends.ids.reshape(-1, 2), ends.own, embeddings, pairs.relation)
        table = PairTable(pairs.named, scores, class_names(job.dataset, of_edges=True))
    job.world.on_root(lambda: table.write(request.out, job.names, job.facts | {"what": "scores"}, request.overwrite))
    return Shape(table.scores.shape, table.scores.dtype)


def own_ids(loaded: Loaded) -> np.ndarray:
    """Return int64: the original ids of this rank's vertices, in the order of their ids."""
    first, end = loaded.ctx.local_range
    if isinstance(loaded.topology, TopologyShard):
        return loaded.topology.own.original_id[: end - first]
    return loaded.topology.original_id[first:end]
