"""What edges carry comes to lie with them: beside a dictionary of edges, in any order, chunks and memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.cli import main
from data_prep.edges import edge_placement
from data_prep.edges.components import induced
from data_prep.edges.edge_records import EdgeArrays
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.sorted_edges import sort_edges
from data_prep.workspace import Workspace
from leapmpi.errors import DataError
from tests.data_prep.edges.test_components import as_edges


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("work"), 2**30, threads=2)


def placed(workspace, edges, vertices, directed=False, **arrays):
    notes = []
    adjacency, _, ids = sort_edges(
        edges, vertices, compact=callable(vertices), directed=directed, name="edges", workspace=workspace,
        arrays=EdgeArrays("edges", **arrays), notes=notes,
    )  # fmt: skip
    return adjacency, ids, notes


def by_hand(pairs, directed, weight, time, features):
    """By edge (source, destination), what it carries."""
    found = {}
    for backwards in (False,) if directed else (False, True):
        own = {}
        for number, (u, v) in enumerate(pairs):
            u, v = (v, u) if backwards else (u, v)
            if u == v or (u, v) in found:
                continue
            before = own.get((u, v))
            if before is None:
                own[u, v] = [weight[number], time[number], features[number]]
            else:
                own[u, v] = [before[0] + weight[number], min(before[1], time[number]), before[2]]
        found |= own
    return found


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=120),
    st.booleans(),
    st.integers(1, 50),
    st.integers(0, 2**31),
)
def test_edges_keep_what_they_carry(workspace, pairs, directed, most, seed):
    random = np.random.default_rng(seed)
    weight = random.integers(-3, 9, len(pairs)).astype(float)
    time, features = random.integers(0, 99, len(pairs)), random.integers(0, 5, (len(pairs), 2))
    wanted = by_hand(pairs, directed, weight, time, features.tolist())
    before = edge_placement._MOST_BUCKETS, edge_placement._READ_BYTES
    edge_placement._MOST_BUCKETS, edge_placement._READ_BYTES = 1 + most % 8, 40 * most
    try:
        found, _, _ = placed(workspace, as_edges(pairs), 41, directed, weight=weight, time=time, features=features)
    finally:
        edge_placement._MOST_BUCKETS, edge_placement._READ_BYTES = before
    row = np.repeat(np.arange(41), np.diff(found.indptr))
    ends = list(zip(found.indices.tolist(), row.tolist(), strict=True))
    data = found.data
    got = {
        end: [w, t, f]
        for end, w, t, f in zip(ends, data.weight.tolist(), data.time.tolist(), data.features.tolist(), strict=True)
    }
    assert got == wanted
    assert (data.weight.dtype, data.time.dtype, data.features.dtype) == (np.float32, np.int64, np.int32)

    # Among some of the vertices.
    keep = random.random(41) < 0.7
    some = induced(found, keep, workspace)
    kept = [end for end in ends if keep[end[0]] and keep[end[1]]]
    assert some.data.weight.tolist() == [wanted[end][0] for end in kept]
    assert some.data.features.tolist() == [wanted[end][2] for end in kept]


def test_records_follow_edges_whose_vertices_are_counted_late(workspace):
    pairs = [(70, 9), (9, 8), (70, 8), (8, 70)]
    found, ids, notes = placed(
        workspace, EdgeStream(lambda: (as_edges(pairs[i : i + 2]) for i in (0, 2))), lambda largest, _: largest + 1,
        weight=np.array([1.0, 2, 3, 4]),
    )  # fmt: skip
    assert ids.tolist() == [8, 9, 70]
    assert found.data.weight.tolist() == [2, 3, 2, 1, 4, 1]
    assert not notes


def test_repeated_edges_are_told(workspace):
    pairs = [(0, 1), (0, 1), (2, 1)]
    _, _, notes = placed(workspace, as_edges(pairs), 3, weight=np.ones(3), features=np.arange(3.0))
    assert notes == ["duplicate edges merged (1): weights summed, the first features kept (1 had others)"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weight": np.ones(2)}, "weight of edges have 2 rows, for 3 edges"),
        ({"weight": np.array([1, np.nan, 2])}, "weight of edge 1 .counted from 0. is nan"),
        ({"weight": np.array([1, -1e300, 2])}, "weight of edge 1 .* is -1e.300, which float32 does not hold"),
        ({"features": np.array([[1], [1], [1e300]])}, "features of edge 2 .* are 1e.300, which float32 does not hold"),
        ({"time": np.array([1, 2**63, 2], np.uint64)}, "time of edge 1 .* is 9223372036854775808, which int64"),
        ({"labels": np.array([1, 2**63, 2], np.uint64)}, "label of edge 1 .* is 9223372036854775808"),
        ({"time": np.ones((3, 2))}, "time of edges must be one number per edge"),
        ({"features": np.array(["a"] * 3)}, "features of edges must be numbers"),
    ],
)
def test_bad_arrays_are_named(workspace, arrays, message):
    with pytest.raises(DataError, match=message):
        placed(workspace, as_edges([(0, 1), (1, 2), (2, 0)]), 3, **arrays)


def test_a_bad_number_is_named_in_a_folder_whose_name_has_braces(tmp_path, capsys):
    folder = tmp_path / "graph{v2}"
    folder.mkdir()
    (folder / "edges.csv").write_text("0,1,1\n1,2,1e300\n")
    columns = ["--edge-columns", "weight"]
    assert main(["import", str(folder / "edges.csv"), str(tmp_path / "g.h5"), *columns]) != 0
    assert "graph{v2}/edges.csv, data row 1 (counted from 0): weight in column 2 is 1e+300" in capsys.readouterr().err
