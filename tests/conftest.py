"""Fixtures that all tests share, and the settings of hypothesis."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

PROJECT = Path(__file__).parents[1]

# The same examples on every run and machine; no time limit per example, since machines differ.
settings.register_profile("leapmpi", derandomize=True, deadline=None, database=None)
settings.load_profile("leapmpi")


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
