"""Quality of a partition for training, estimated without training: copies, edges cut, locality, remote rows.

Remote rows are counted in dry runs of some iterations with the real sampler, and also derived from vertex-inclusion
probabilities (SALIENT++, MLSys 2023; features/expected_reads.py). The latter take draws of different vertices as
independent, and give too many rows where small batches meet dense neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import edge_chunks
from data_prep.partitioning.multilevel.blocks import workers
from data_prep.partitioning.multilevel.weighted_graph import Chunk
from data_prep.partitioning.part_ordering import no_cut_weights
from data_prep.partitioning.request import training_vertices
from data_prep.progress import SILENT, Progress
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.reader import map_array, opened, required
from leapmpi.dataset.hdf5.row_blocks import row_ranges
from leapmpi.dataset.topology import from_graph
from leapmpi.features.expected_reads import included
from leapmpi.plan.micrograph import locality
from leapmpi.plan.planner import plan_pull
from leapmpi.sampling.epoch_order import epoch_order
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sharded.id_set import IdSet
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import processor_count

STRATEGIES = ("leap", "pull")
"""leap trains each root on the rank of its part; pull distributes the roots over the ranks at random."""

_MARK_BYTES = 16
"""Most bytes of marks per vertex, over all threads."""

_SOURCE_BYTES = 16
"""Bytes for a source whose part is found."""

_MICROGRAPHS = 256
"""Roots whose locality is measured, one micrograph each."""

_DRY_RUNS = 8
"""Iterations that are sampled in a dry run."""

_SEED = 0


@compiled
def _mark(chunk, begin, end, assignment, first_part, needed, weights):
    """Set the bit of each vertex's part in `needed` of itself and of its in-neighbours, and count edges cut.

    For rows begin ... end - 1 and the k parts from `first_part` on. The in-edges of part first_part + i from each other
    part are added to weights[i]: float64[k, P], or [k, 0] where they do not count.
    """
    first, indptr, indices, _ = chunk
    for row in range(begin, end):
        part = assignment[first + row]
        bit = part - first_part
        if 0 <= bit < len(weights):
            mark = np.uint64(1) << np.uint64(bit)
            needed[first + row] |= mark
            for e in range(indptr[row], indptr[row + 1]):
                needed[indices[e]] |= mark
                other = assignment[indices[e]]
                if other != part and weights.shape[1]:
                    weights[bit, other] += 1


@compiled
def _set_bits(words):
    """Count the bits that are set, over all words."""
    count = 0
    for word in words:
        rest = np.uint64(word)
        while rest:
            rest &= rest - np.uint64(1)
            count += 1
    return count


class Copies(NamedTuple):
    """Vertices that some parts need: `total` counts those of a part and their in-neighbours once for each part.

    weights: float64[k, P], the in-edges of each of k parts from each other one; [k, 0] for very many parts.
    """

    total: int
    weights: np.ndarray


def count_copies(graph: Graph, assignment: np.ndarray, parts: int, progress: Progress = SILENT) -> Copies:
    """Count what all `parts` need.

    Holds at most 9 bytes a vertex, 2 up to 8 parts, by one thread, at most 17 by several. The edges are read once for
    64 parts.
    """
    weights = no_cut_weights(parts)
    # A bit per part in the smallest word that holds them; 64 parts at a time. Threads mark and count for themselves.
    bits, total = min(64, 1 << max(3, (parts - 1).bit_length())), 0
    with workers(min(processor_count(), _MARK_BYTES * 8 // bits)) as team:
        for first in range(0, parts, bits):
            needed = np.zeros((team.count, graph.vertices), f"u{bits // 8}")
            cut = np.zeros((team.count, *weights[first : first + bits].shape))
            for chunk in edge_chunks(graph, 1.0, progress):
                mark = partial(_mark_by_thread, chunk, assignment, first, needed, cut)
                team.over_rows(chunk.indptr, 0, chunk.vertices, mark)
            for each in needed[1:]:
                needed[0] |= each
            total += _set_bits(needed[0])
            # Whole numbers: their sums are exact.
            weights[first : first + bits] = cut.sum(axis=0)
    return Copies(int(total), weights)


def copies_of_files(files: Sequence[Path], chosen: range, offsets: np.ndarray, progress: Progress = SILENT) -> Copies:
    """Count what the consecutive parts `chosen` need by their `files`, as `count_copies` does by the graph.

    offsets: int64[P + 1], the first vertex of each of all P parts. Reads the edges of these parts alone, and holds at
    most 3 bytes a vertex of the graph.
    """
    vertices, weights, total = int(offsets[-1]), no_cut_weights(len(offsets) - 1)[chosen.start : chosen.stop], 0
    counted = weights.shape[1]
    part_of = np.repeat(np.arange(counted, dtype=np.uint16), np.diff(offsets)[:counted])
    first_of_all = int(offsets[chosen.start])
    progress.start(int(offsets[chosen.stop]) - first_of_all, "vertices")
    for part, file, of_others in zip(chosen, files, weights, strict=True):
        first, end = offsets[part : part + 2].tolist()
        with opened(file, names.PART_FORMAT) as (found, attributes):
            shape = (required(attributes, "part_edges", int, file),)
            indices = map_array(found, names.INDICES, (names.index_dtype(vertices),), shape)
        sources = IdSet(vertices, first, end)
        for start, stop in row_ranges(len(indices), _SOURCE_BYTES):
            block = indices[start:stop]
            sources.add(block)
            if counted:
                of_others += np.bincount(part_of[block], minlength=counted)
        of_others[part : part + 1] = 0
        total += end - first + sources.count
        progress.reach(end - first_of_all)
    return Copies(total, weights)


def _mark_by_thread(
    chunk: Chunk,
    assignment: np.ndarray,
    first_part: int,
    needed: np.ndarray,
    cut: np.ndarray,
    begin: int,
    end: int,
    thread: int,
) -> None:
    _mark(chunk, begin, end, assignment, first_part, needed[thread], cut[thread])


def _shares_on_ranks(weights: np.ndarray, edges: int) -> dict[int, float]:
    """Share of the edges between ranks, on 2, 4, 8, ... ranks and one a part, each with a contiguous group of parts.

    weights: float64[P, P], the edges between parts, or empty for so many that pairs are not counted. One part has none.
    """
    if weights.size < 2:
        return {}
    parts, shares = len(weights), {}
    for ranks in [*(2**power for power in range(1, parts.bit_length()) if 2**power < parts), parts]:
        rank_of = np.arange(parts) * ranks // parts
        shares[ranks] = float(weights[rank_of[:, None] != rank_of].sum()) / max(1, edges)
    return shares


@dataclass(frozen=True)
class SampledReport:
    """Estimates for sampled training with `fanouts`, and `batch_size` roots per iteration over all ranks, one a part.

    locality: R_micro. By strategy, raw feature rows that cross ranks: `rows` in an iteration with a whole batch,
    `epoch_rows` in an epoch, whose last batch may be smaller, both by dry runs; `vip_rows` in an iteration by analysis.
    """

    fanouts: tuple[int, ...]
    batch_size: int
    locality: float
    rows: dict[str, float]
    epoch_rows: dict[str, float]
    vip_rows: dict[str, float]

    def figures(self) -> dict[str, int | float | str]:
        """Return the figures as attributes of the dataset."""
        return {
            "report_fanout": ",".join(map(str, self.fanouts)),
            "report_batch_size": self.batch_size,
            "micrograph_locality": self.locality,
            **{f"{name}_remote_rows": count for name, count in self.rows.items()},
            **{f"{name}_remote_rows_epoch": count for name, count in self.epoch_rows.items()},
            **{f"{name}_remote_rows_vip": count for name, count in self.vip_rows.items()},
        }

    def lines(self) -> list[tuple[str, str]]:
        """Return lines of a table: name and text."""
        of = f"fan-out {','.join(map(str, self.fanouts))}, {self.batch_size:,} roots over all ranks"
        rows = [
            f"{name} {self.rows[name]:,.0f} (by VIP {self.vip_rows[name]:,.0f}; {self.epoch_rows[name]:,.0f} an epoch)"
            for name in STRATEGIES
        ]
        return [
            ("R_micro", f"{self.locality:.3f} of a micrograph is in the part of its root; {of}"),
            ("remote rows", f"an iteration of raw rows on one rank a part: {', '.join(rows)}"),
        ]


@dataclass(frozen=True)
class CutReport:
    """replication: parts that need a vertex, on average; on_ranks: share of the edges cut by number of ranks."""

    replication: float
    on_ranks: dict[int, float]
    sampled: SampledReport | None

    def figures(self) -> dict[str, int | float | str]:
        """Return the figures as attributes of the dataset."""
        shares = {"cut_on_ranks": " ".join(f"{ranks}:{share:.6g}" for ranks, share in self.on_ranks.items())}
        sampled = self.sampled.figures() if self.sampled else {}
        return {"replication": self.replication, **(shares if self.on_ranks else {}), **sampled}

    def lines(self) -> list[tuple[str, str]]:
        """Return lines of a table: name and text."""
        lines = [
            (
                "replication",
                f"a vertex is needed by {self.replication:.3f} parts on average: its own, and those of out-neighbours",
            )
        ]
        if self.on_ranks:
            lines.append(("cut on ranks", ", ".join(f"{ranks}: {share:.2%}" for ranks, share in self.on_ranks.items())))
        return lines + (self.sampled.lines() if self.sampled else [])


def report_on(
    graph: Graph,
    assignment: np.ndarray,
    parts: int,
    training: tuple[tuple[int, ...], int] | None,
    progress: Progress = SILENT,
    copies: Copies | None = None,
) -> CutReport:
    """Report on the parts int32[n], with sampled training for `training` = (fan-outs, batch size) where given.

    copies: those of all parts, where they are known.
    """
    sampled = sampled_report(graph, assignment, parts, *training) if training else None
    copies = copies or count_copies(graph, assignment, parts, progress=progress)
    shares = _shares_on_ranks(copies.weights, graph.edges)
    return CutReport(copies.total / graph.vertices, shares, sampled)


class _SampledTraining:
    """Sampled training on one rank a part, without training: what its iterations would read."""

    def __init__(self, graph: Graph, assignment: np.ndarray, parts: int, fanouts: tuple[int, ...]) -> None:
        self.topology = from_graph(graph)
        self.assignment = assignment
        self.parts = parts
        self.train = np.flatnonzero(training_vertices(graph))
        self.sampler = NodeWiseSampler(self.topology, fanouts)

    def batch(self, size: int, epoch: int = 0) -> np.ndarray:
        """Draw `size` training vertices (int64) as for an epoch, on a random stream that no run draws from."""
        original = np.asarray(self.topology.original_id[self.train])
        return epoch_order(self.train, original, _SEED, epoch, PRESAMPLE)[:size]

    def locality(self, roots: np.ndarray) -> float:
        """Compute R_micro: the mean share of a micrograph's vertices in the part of its root."""
        return locality(self.sampler, DrawKey(PRESAMPLE, _SEED, 0, 0), roots, lambda ids: self.assignment[ids])

    def dry_run(self, size: int) -> dict[str, float]:
        """Count the mean rows that cross ranks in iterations with `size` roots, by the real sampler."""
        counts = dict.fromkeys(STRATEGIES, 0)
        for number in range(_DRY_RUNS):
            batch = self.batch(size, number)
            shuffled = plan_pull(batch, self.parts)
            for part in range(self.parts):
                of_rank = {"leap": batch[self.assignment[batch] == part], "pull": shuffled.rank_roots(part)}
                for name, roots in of_rank.items():
                    read = self.sampler.sample(DrawKey(PRESAMPLE, _SEED, number, 0), roots)[-1].src
                    counts[name] += int(np.count_nonzero(self.assignment[read] != part))
        return {name: count / _DRY_RUNS for name, count in counts.items()}

    def by_analysis(self, size: int) -> dict[str, float]:
        """Estimate the rows that cross ranks in an iteration, by vertex-inclusion probabilities."""
        chance = size / len(self.train)

        # leap: each rank reads for the roots of its part; rows of other parts are remote.
        local_roots = 0.0
        for part in range(self.parts):
            read = self._read(self.train[self.assignment[self.train] == part], chance)
            local_roots += float(read[self.assignment != part].sum())

        # pull: all ranks read by the same law, and each row is local to one of them.
        any_roots = float(self._read(self.train, chance / self.parts).sum())
        return {"leap": local_roots, "pull": (self.parts - 1) * any_roots}

    def _read(self, roots: np.ndarray, chance: float) -> np.ndarray:
        """Return each vertex's chance to be read if each of `roots` is in the batch with `chance`: float64[n]."""
        chances = np.zeros(len(self.assignment))
        chances[roots] = chance
        topology = self.topology
        return included(np.asarray(topology.indptr), np.asarray(topology.indices), chances, self.sampler.fanouts)


def sampled_report(
    graph: Graph, assignment: np.ndarray, parts: int, fanouts: tuple[int, ...], batch_size: int
) -> SampledReport | None:
    """Estimate training on one rank a part; None for a graph without training vertices.

    The analysis takes a pass over the edges per part and hop, and some arrays of float64 per vertex.
    """
    training = _SampledTraining(graph, assignment, parts, fanouts)
    if not len(training.train):
        return None

    # An epoch is some whole batches, and perhaps a smaller one.
    size = min(batch_size, len(training.train))
    whole, rest = divmod(len(training.train), size)
    rows = training.dry_run(size)
    last = training.dry_run(rest) if rest else dict.fromkeys(STRATEGIES, 0.0)
    epoch_rows = {name: whole * rows[name] + last[name] for name in STRATEGIES}
    found = training.locality(training.batch(_MICROGRAPHS))
    return SampledReport(fanouts, batch_size, found, rows, epoch_rows, training.by_analysis(size))
