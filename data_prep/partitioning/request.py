"""A user's request of a partition, and the resulting capacities of parts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from data_prep.partitioning.multilevel.balance import Caps
from data_prep.progress import SILENT, Progress
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.errors import ConfigError, counted


@dataclass(frozen=True)
class PartitionRequest:
    """Rules for partitioning a graph. A method that cannot use a field ignores it."""

    levels: tuple[int, ...]
    """Numbers of parts by level: (4,) are 4 parts; (4, 16) are 4 groups of 16 parts each."""
    method: str = "auto"
    """Name of a member of `methods/`."""
    seed: int = 0
    """The same seed gives the same parts."""
    tolerance: float = 1.05
    """The largest part may have this many times the mean number of vertices, and of training vertices."""
    memory: int | None = None
    """Bytes that the process may use, its interpreter included; None: as much as the machine has."""
    chunk: float = 0.1
    """Share of the graph's edges that a streaming method holds at once."""
    threads: int = 1
    """Threads for methods that have them; the result does not depend on their number."""
    progress: Progress = SILENT
    """Follows the passes over the edges."""
    balance: str = "training"
    """Balance criterion besides vertices, of BALANCES; vertices: nothing else."""
    fanout: tuple[int, ...] = (10, 10)
    """For balance work: how training would sample."""
    weights: np.ndarray | None = None
    """int32[n]: the weight of each vertex in that balance; None: 1 for a training vertex, 0 for another."""
    groups: np.ndarray | None = None
    """int16[n]: the type of each vertex, where parts are balanced or made by types; None: types do not count."""
    given: np.ndarray | None = None
    """For method given: the part of each row of the source, integers."""

    @property
    def parts(self) -> int:
        """The number of parts, over all levels."""
        return math.prod(self.levels)

    def check(self, graph: Graph) -> None:
        """Raise ConfigError where `graph` cannot be partitioned so: numbers of parts, seeds, tolerances."""
        if self.parts < 1:
            raise ConfigError(f"--parts is {self.parts}; it must be at least 1")
        if self.parts > graph.vertices:
            raise ConfigError(
                f"--parts is {self.parts}, but the graph has only {counted(graph.vertices, 'vertex')}; use fewer parts"
            )
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"--seed is {self.seed}; it must be between 0 and 2**63 - 1")
        if not 1 <= self.tolerance < float("inf"):
            raise ConfigError(f"--tolerance is {self.tolerance}; it must be a number of at least 1, such as 1.05")


def parse_hierarchy(text: str) -> tuple[int, ...]:
    """Parse '4x16' as (4, 16). Raises ConfigError."""
    if not re.fullmatch(r"[1-9][0-9]{0,6}(x[1-9][0-9]{0,6})+", text):
        raise ConfigError(f"--hierarchy {text}: give the numbers of parts by level, such as 4x16")
    return tuple(map(int, text.split("x")))


def largest_part(total: int, parts: int, tolerance: float) -> int:
    """Return `tolerance` times the mean of `total` over the parts, rounded down, but at least the mean rounded up."""
    return max(math.ceil(total / parts), math.floor(tolerance * total / parts))


def part_capacity(training: np.ndarray, request: PartitionRequest) -> Caps:
    """Return the caps of each part of a graph with training vertices bool[n], or their weights int32[n]."""
    counts = (len(training), int(training.sum(dtype=np.int64)))
    size, most = (largest_part(count, request.parts, request.tolerance) for count in counts)
    # A vertex is never divided.
    return Caps(request.parts, size, most if request.weights is None else max(most, int(training.max(initial=0))))


def balanced_vertices(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Return the quantity that `request` balances: training vertices bool[n], or weights int32[n]."""
    return training_vertices(graph) if request.weights is None else request.weights


def training_vertices(graph: Graph) -> np.ndarray:
    """Mark the training vertices of `graph`, none without a split: bool[n]."""
    if graph.split is None:
        return np.zeros(graph.vertices, bool)
    return np.asarray(graph.split) == names.TRAIN
