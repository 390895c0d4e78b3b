"""Fixtures that all tests share, and the settings of hypothesis."""

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from leapmpi.runs.run import Run
from tests.support.small_run import train_small, write_small_data

PROJECT = Path(__file__).parents[1]

# Until all tests are collected: what imports make is not garbage.
gc.disable()

# A shell's background commands start with SIGINT ignored, and so would all programs that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every run and machine; no time limit per example, since machines differ.
settings.register_profile("leapmpi", derandomize=True, deadline=None, database=None)
settings.load_profile("leapmpi")


def _place(item: pytest.Item) -> tuple[int, float]:
    """First the tests that compile most kernels, which ranks that start at the same time would all compile; then those
    that take long; then all others. The longest go first, so that none is left to run alone."""
    long = item.get_closest_marker("long")
    seconds = float(long.args[0]) if long else 0.0
    if item.get_closest_marker("compiles"):
        return 0, -seconds
    return (1, -seconds) if long else (2, 0.0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by `_place`, and give a parallel job a group of its own, in which the scheduler finds it."""
    items.sort(key=_place)
    for item in items:
        if ranks := item.get_closest_marker("ranks"):
            item.add_marker(pytest.mark.xdist_group(f"{ranks.args[0]} ranks"))


def pytest_collection_finish() -> None:
    """Imported modules and collected tests are not garbage: runs in this process need not look through them."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """At the end pytest collects garbage several times: only what comes from now on, for the process ends."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a file run in one process, in which they share what is costly to make, but for those marked `ranks`,
    each of which goes by itself. Under --dist loadgroup, xdist appends a test's group to its id."""
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return scope.partition("::")[0] if scope == nodeid else scope

    return ByFile(config, log)


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
    return write_small_data(tmp_path_factory.mktemp("small") / "data")


@pytest.fixture(scope="session")
def finished_run(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three epochs on `small_data`, trained by one rank in this process. Read only."""
    return train_small(small_data, tmp_path_factory.mktemp("finished") / "run")
