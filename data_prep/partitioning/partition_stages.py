"""Stages of `partition`: parts and order of the vertices, and the files of the parts.

They are made here, taken from an earlier run, or shared by the tasks of a job array: the first task cuts the graph, the
others verify it meanwhile, and each then writes the files of some parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.partitioning.partition_graph import Partition, partition_graph
from data_prep.partitioning.quality_report import Copies, copies_of_files
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.vertex_order import community_order
from data_prep.progress import Steps
from data_prep.workspace import Workspace
from leapmpi.dataset.dataset_writer import write_part_files
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.verify import compare_content, verify_graph, verify_lists, verify_share

_FOUND, _WRITTEN = "parts-found", "parts-written"
"""Stages of tasks."""

_ORDER, _LANES, _COPIES, _WEIGHTS = "order", "lanes", "copies", "weights"
"""Arrays and values of these stages."""

_VERIFIED = "verified"
"""A stage of one process."""

Cut = tuple[Partition, np.ndarray | None]
"""The parts, and all vertices (integers[n]) in their order within parts, None for that of the graph."""


def cut(graph: Graph, request: PartitionRequest, workspace: Workspace, steps: Steps, *, ordered: bool) -> Cut:
    """Cut the graph, and put its vertices in order by communities if `ordered`, or take both from an earlier run.

    Raises ShareFinished in a task.
    """
    if found := workspace.finished("cut"):
        result = Partition.of_stored(*found)
    else:
        with steps.step("cut") as progress:
            result = partition_graph(graph, replace(request, progress=progress))
        workspace.finish("cut", *result.stored())
    order = _order(graph, request, workspace, steps) if ordered else None
    if workspace.task:
        values, arrays = result.stored()
        workspace.finish_share(_FOUND, values, arrays | ({} if order is None else {_ORDER: order}))
    return result, order


def _order(graph: Graph, request: PartitionRequest, workspace: Workspace, steps: Steps) -> np.ndarray:
    if found := workspace.finished("ordered"):
        return found[1]["vertices"]
    with steps.step("order") as progress:
        order = community_order(graph, replace(request, progress=progress))
    workspace.finish("ordered", {}, {"vertices": order})
    return order


def cut_by_tasks(path: Path, graph: Graph, workspace: Workspace, steps: Steps) -> Cut | None:
    """Return the cut that tasks have made; else verify the graph, and return None: it is still to be cut.

    The first of several tasks verifies as much as the cut needs, the others do all of it and raise ShareFinished.
    Raises DataError for the first fault of the graph in the file `path`.
    """
    shares, task = workspace.shares, workspace.task
    if shares and (found := shares.load(_FOUND)):
        values, arrays = found[0]
        # Each of the other tasks left the lanes of its share: only their sum has the graph's uuid.
        if lanes := [each[_LANES] for each, _ in found[1:]]:
            compare_content(path, graph, lanes)
        order = arrays.pop(_ORDER, None)
        return Partition.of_stored(values, arrays), order
    if shares and task:
        shares.begin(_FOUND)
    if workspace.finished(_VERIFIED) is not None:
        return None
    with steps.step("verify") as progress:
        progress.start(graph.vertices, "vertices")
        if task and task.index:
            lanes = verify_share(path, graph, task.index - 1, task.count - 1, progress.reach)
        elif task and task.count > 1:
            verify_lists(path, graph)
        else:
            verify_graph(path, progress.reach, graph)
    if task and task.index:
        workspace.finish_share(_FOUND, {_LANES: lanes}, {})
    workspace.finish(_VERIFIED, {}, {})
    return None


class PartFiles(NamedTuple):
    """The files of all parts, and what was counted for the report."""

    files: list[Path]
    copies: Copies


def part_files_by_tasks(
    graph: Graph, result: Partition, layout: Mapping[str, Any], workspace: Workspace, steps: Steps
) -> PartFiles | None:
    """Return the files of all parts, if tasks have written them.

    A task writes its own and raises ShareFinished. layout: arguments of `write_part_files`.
    """
    shares = workspace.shares
    if shares is None:
        return None
    if shares.task is None:
        if not (found := shares.load(_WRITTEN)):
            return None
        weights = np.concatenate([arrays.pop(_WEIGHTS) for _, arrays in found])
        copies = Copies(sum(values[_COPIES] for values, _ in found), weights)
        mapped = [each for _, arrays in found for each in arrays.values() if isinstance(each, np.memmap)]
        return PartFiles([Path(str(each.filename)) for each in mapped], copies)

    # Consecutive parts, about as many for each task.
    task, parts = shares.begin(_WRITTEN, last=True), len(result.vertices)
    low, high = (parts * each // task.count for each in (task.index, task.index + 1))
    chosen = range(low, high)
    with steps.step("write") as progress:
        progress.start(graph.vertices, "vertices")
        files = write_part_files(
            workspace.folder, graph, result.assignment, parts, chosen, progress=progress.reach, **layout
        )
    with steps.step("report") as progress:
        offsets = np.concatenate(([0], np.cumsum(result.vertices)))
        copies = copies_of_files(files, chosen, offsets, progress)
    arrays = {_WEIGHTS: copies.weights, **{file.name: np.memmap(file, np.uint8, "r") for file in files}}
    workspace.finish_share(_WRITTEN, {_COPIES: copies.total}, arrays, last=True)
