"""Fixtures for the tests of preparation: the command line run in this process, and a small graph to write."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_file import open_graph


@dataclass
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    error: str


@pytest.fixture
def prep(capsys: pytest.CaptureFixture) -> Callable[..., Outcome]:
    """Run leapmpi-prep with the given arguments."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def imported(prep: Callable[..., Outcome], tmp_path: Path) -> Callable[..., Graph]:
    """Import a source with the given arguments; returns the graph, with what the command printed as its `table`."""

    def run(source: object, *arguments: object) -> Graph:
        outcome = prep("import", source, tmp_path / "out.h5", "--overwrite", *arguments)
        assert outcome.code == 0, outcome.error
        graph = open_graph(tmp_path / "out.h5")
        graph.table = outcome.out
        return graph

    return run


@pytest.fixture
def refused(prep: Callable[..., Outcome], tmp_path: Path) -> Callable[..., str]:
    """Import `arguments`, which must fail with one sentence and leave no file; returns the sentence."""

    def run(*arguments: object) -> str:
        folder = tmp_path / "refused"
        folder.mkdir(exist_ok=True)
        outcome = prep("import", arguments[0], folder / "graph.h5", *arguments[1:])
        assert outcome.code in (2, 3)
        assert outcome.out == ""
        assert outcome.error.startswith("leapmpi-prep: error: ")
        assert outcome.error.count("\n") == 1
        assert "Traceback" not in outcome.error
        assert list(folder.iterdir()) == []
        return outcome.error

    return run


@dataclass
class Small:
    """Six vertices: a ring of five, one of them unlabelled, and an isolated one.

    Of the edges (source, destination) one is a self-loop, one a duplicate, and one the reverse of another.
    """

    edges: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays under the generic .npz names."""
        return {
            "edge_index": self.edges,
            "features": self.features,
            "labels": self.labels,
            "train": self.train,
            "val": self.val,
            "test": self.test,
        }


SYMMETRIC = [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3], []]


@pytest.fixture
def small() -> Small:
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (2, 2), (0, 1), (1, 0)]
    return Small(
        edges=np.array(edges, np.int64).T,
        features=np.arange(18, dtype=np.float64).reshape(6, 3) % 5,
        labels=np.array([0, 1, 2, -1, 0, 1]),
        train=np.array([0, 1]),
        val=np.array([2]),
        test=np.array([4, 5]),
    )


def neighbours(graph) -> list[list[int]]:
    """In-neighbours by vertex as plain lists."""
    return [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in range(graph.vertices)]
