"""Fixtures that all tests share, and the settings of hypothesis."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from leapmpi import Config, train
from leapmpi.dataset.partitioned import write_dataset
from leapmpi.run import Run
from tests.dataset.graphs import random_graph

PROJECT = Path(__file__).parents[1]

# A shell's background commands start with SIGINT ignored, and so would all programs that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every run and machine; no time limit per example, since machines differ.
settings.register_profile("leapmpi", derandomize=True, deadline=None, database=None)
settings.load_profile("leapmpi")


LONGEST = ("test_parallel.py", "test_failure.py", "test_kills.py", "test_slurm.py", "test_accuracy.py", "test_jobs.py")

COMPILING = ("nn", "sampling", "training", "strategies", "plan", "caching")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come early, so that none is left to run alone, but after those that compile most
    kernels, which ranks that start together would all compile."""

    def place(item: pytest.Item) -> int:
        if item.path.name in LONGEST:
            return LONGEST.index(item.path.name)
        return -1 if item.path.parent.name in COMPILING else len(LONGEST)

    items.sort(key=place)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real graphs: $LEAPMPI_TEST_DATA, or shared/data beside the project; skips without it."""
    folder = Path(os.environ.get("LEAPMPI_TEST_DATA") or PROJECT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no folder of real graphs at {folder}; name one in LEAPMPI_TEST_DATA")
    return folder


@pytest.fixture(scope="session")
def real_graph(test_data: Path) -> Callable[[str], Path]:
    """A function from a data set's name to its folder among the real graphs; skips where it is missing."""

    def find(name: str) -> Path:
        folder = test_data / name
        if not folder.is_dir():
            pytest.skip(f"no {name} among the real graphs at {test_data} (LEAPMPI_TEST_DATA)")
        return folder

    return find


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of four uneven parts that trains in a moment: 240 vertices, 5 features, 3 classes. Read only."""
    folder = tmp_path_factory.mktemp("small") / "data"
    graph = random_graph(n=240, degree=6)
    assignment = np.minimum(np.arange(graph.vertices) * 7 % 6, 3)
    write_dataset(folder, graph, assignment, 4, method="test", figures={}, seed=0)
    return folder


@pytest.fixture(scope="session")
def finished_run(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three epochs on `small_data`, trained by one rank in this process. Read only."""
    settings = {"data": str(small_data), "model.hidden": 16, "train": {"epochs": 3, "batch_size": 32, "lr": 0.05}}
    folder = tmp_path_factory.mktemp("finished") / "run"
    return train(Config.from_values({**settings, "run": {"folder": str(folder), "threads": 1, "log_level": "error"}}))
