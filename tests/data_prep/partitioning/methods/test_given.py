"""A cut that exists is kept as it is, or refused in one sentence."""

import numpy as np
import pytest

from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.partitioned import open_dataset
from tests.support.graphs import random_graph

GRAPH = random_graph(n=60, degree=4)
ROWS = int(GRAPH.original_id.max()) + 1
PARTS = (np.arange(ROWS) * 7 % 5 > 1).astype(np.int64) + (np.arange(ROWS) % 11 == 0)
"""Three uneven parts, for each row of the source."""


@pytest.fixture
def cut(prep, tmp_path):
    """A function that cuts the graph with the given flags."""
    write_graph(tmp_path / "graph.h5", GRAPH)

    def run(*flags):
        return prep("partition", tmp_path / "graph.h5", tmp_path / "data", *flags)

    return run


def parts_of(folder):
    dataset = open_dataset(folder)
    return [dataset.part(part).original_id.tolist() for part in range(dataset.parts)]


EXPECTED = [[int(v) for v in GRAPH.original_id if PARTS[v] == part] for part in range(3)]


@pytest.mark.parametrize("name", ["parts.npy", "graph.metis.part.3", "parts.txt"])
def test_parts_are_those_of_the_file(cut, tmp_path, name):
    if name.endswith(".npy"):
        np.save(tmp_path / name, PARTS)
    else:
        (tmp_path / name).write_text("".join(f"{part}\n" for part in PARTS))
    outcome = cut("--parts-from", tmp_path / name)
    assert outcome.code == 0, outcome.error
    assert parts_of(tmp_path / "data") == EXPECTED
    assert open_dataset(tmp_path / "data").attributes["method"] == "given"


REFUSED = [
    (PARTS[:10], (), f"have 10 rows, but the graph has vertices up to row {ROWS - 1}"),
    (PARTS, ("--parts", "2"), "says part 2, outside 0 ... 1"),
    (PARTS - 1, (), "says part -1, outside 0 ... 1"),
    (PARTS, ("--parts", "4"), "no vertex of the graph is in part 3 of 4"),
    (PARTS + 0.5, (), "expected one whole number for each vertex"),
    (PARTS, ("--method", "metis"), "--parts-from goes with --method given, not with metis"),
    (PARTS, ("--hierarchy", "2x2"), "leave --hierarchy out"),
]


@pytest.mark.parametrize(("parts", "flags", "sentence"), REFUSED)
def test_refused_in_one_sentence(cut, tmp_path, parts, flags, sentence):
    np.save(tmp_path / "parts.npy", parts)
    outcome = cut("--parts-from", tmp_path / "parts.npy", *flags)
    assert outcome.code in (2, 3)
    assert outcome.error.count("\n") == 1
    assert sentence in outcome.error
    assert not (tmp_path / "data").exists()


def test_a_graph_without_a_cut_says_what_to_give(cut):
    assert (
        "came without parts; name a file with the part of each vertex: --parts-from FILE"
        in cut("--method", "given").error
    )
