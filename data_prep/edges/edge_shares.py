"""Shares of the edges for the tasks of a job array: of reading them, and of the rows that are sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data_prep.edges.edge_keys import count_keys
from data_prep.edges.edge_records import Chunk
from data_prep.edges.edge_sort import read_only_ends
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.seen_edges import READ, SeenEdges
from data_prep.progress import Progress
from data_prep.workspace import Workspace
from leapmpi.errors import ConfigError
from leapmpi.system.task_shares import Task

_COUNTED_RANGES = 12
"""Rows are counted in up to 2**12 ranges, at whose bounds shares may begin."""


def read_in_shares(streams: Sequence[EdgeStream], workspace: Workspace, progress: Progress) -> list[EdgeStream]:
    """Return `streams` from the files to which all tasks have read them; mapped ones stay, as they need no reading.

    A task that has its share of the reading still to do does it. Raises ShareFinished then, ConfigError where ids are
    numbered as they are read.
    """
    shares = workspace.shares
    if shares is None or workspace.task is None or all(each.mapped for each in streams):
        return list(streams)
    if not all(each.resumable for each in streams):
        raise ConfigError(
            "--share: ids that are texts are numbered in one go; leave it out, or name vertices by --vertex-table"
        )
    # All tasks have read their shares: their files together are the stream.
    if found := shares.load(READ):
        return [each if each.mapped else _joined(each, r, found, workspace) for r, each in enumerate(streams)]

    task = shares.begin(READ)
    values: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for r, each in enumerate(streams):
        if not each.mapped:
            seen = SeenEdges(replace(each, chunks=_share_of(each, r, task)), workspace)
            seen.stage(progress)
            values[str(r)], of_stream = seen.stored()
            arrays |= {f"{r}-{name}": array for name, array in of_stream.items()}
    workspace.finish_share(READ, values, arrays)


def _share_of(stream: EdgeStream, r: int, task: Task) -> Callable[[], Iterator[Chunk]]:
    """Return the reader of a task's share of stream `r`. One that cannot be read in part is the share of one task."""
    if stream.share is not None:
        read = stream.share
        return lambda: read(task.index, task.count)
    return stream.chunks if r % task.count == task.index else lambda: iter(())


def _joined(stream: EdgeStream, r: int, shares: list, workspace: Workspace) -> EdgeStream:
    """Return stream `r` from the files of all shares."""
    parts = []
    for values, arrays in shares:
        part = SeenEdges(stream, workspace)
        part.restore(values[str(r)], {name: arrays[name] for name in arrays if name.startswith(f"{r}-")})
        parts.append(part)

    def chunks() -> Iterator[Chunk]:
        for part in parts:
            yield from part.chunks()

    # Where a source states another count, reading it in one go describes the fault.
    count = sum(each.count for each in parts)
    if stream.count not in (None, count):
        for _ in stream.chunks():
            pass
    return replace(stream, chunks=chunks, count=count, mapped=True, share=None)


def rows_of_share(task: Task, edges: Iterator[np.ndarray], vertices: int, directed: bool) -> tuple[int, int]:
    """Return first and end of the rows that `task` sorts: shares of about as many edges, found by counting all.

    edges: all of them, by chunks [2, k] of valid numbers.
    """
    bits = max(0, (vertices - 1).bit_length() - _COUNTED_RANGES)
    counts = np.zeros(((vertices - 1) >> bits) + 1, np.int64)
    for chunk in edges:
        count_keys(*read_only_ends(chunk), 0, vertices, bits, directed, counts)
    # An edge less or more per vertex keeps shares of graphs without edges equal, too.
    total = np.cumsum(counts + 1)
    goals = total[-1] * np.arange(1, task.count) / task.count
    bounds = [0, *(np.searchsorted(total, goals) << bits).tolist(), vertices]
    return bounds[task.index], bounds[task.index + 1]
