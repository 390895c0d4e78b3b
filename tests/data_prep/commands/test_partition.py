"""The commands partition, info and check, as users call them."""

import json
import re

import numpy as np
import pytest

from data_prep.cli import main
from leapmpi.dataset.graph import content_uuid
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.runs import progress_line
from tests.support.graphs import random_graph


@pytest.fixture
def graph_file(tmp_path):
    write_graph(tmp_path / "graph.h5", random_graph())
    return tmp_path / "graph.h5"


def run(capsys, *words):
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("method", ["metis", "hash", "random", "contiguous"])
@pytest.mark.parametrize("parts", [1, 4])
def test_partition_then_check(capsys, tmp_path, graph_file, method, parts):
    folder = tmp_path / "data"
    code, out, err = run(capsys, "partition", graph_file, folder, "--parts", parts, "--method", method, "--seed", 7)
    assert (code, err) == (0, "")
    dataset = open_dataset(folder)
    assert (dataset.parts, dataset.attributes["method"], dataset.attributes["seed"]) == (parts, method, 7)
    assert dataset.graph_uuid == content_uuid(random_graph())
    assert f"{dataset.attributes['edge_cut']:,} edges lead to another part" in out
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert f"{size:,} bytes" in out
    assert all(len(line) <= 80 for line in out.splitlines() if str(tmp_path) not in line)
    code, out, err = run(capsys, "check", folder)
    assert (code, err) == (0, "")
    assert "sound" in out
    assert dataset.graph_uuid in out


@pytest.mark.parametrize("method", ["metis", "hash"])
def test_vertices_by_community(capsys, tmp_path, graph_file, method):
    words = ["partition", graph_file, tmp_path / "data", "--parts", 4, "--method", method, "--order", "communities"]
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert "\n  order " in out
    assert run(capsys, "check", tmp_path / "data")[0] == 0
    assert "communities" in next(
        line for line in run(capsys, "info", tmp_path / "data")[1].splitlines() if "vertex_order" in line
    )
    # The cut is that of the other order.
    run(capsys, *words[:-2], "--overwrite")
    assert "source" in next(
        line for line in run(capsys, "info", tmp_path / "data")[1].splitlines() if "vertex_order" in line
    )


@pytest.mark.parametrize("method", ["grem", "ldg", "fennel", "reldg", "bgl"])
def test_passes_over_the_edges_are_told(capsys, tmp_path, graph_file, monkeypatch, method):
    monkeypatch.setattr(progress_line, "IN_LOG", 1e-9)
    code, _, err = run(capsys, "partition", graph_file, tmp_path / "data", "--parts", 4, "--method", method)
    assert code == 0
    edges = f"{open_dataset(tmp_path / 'data').edges:,}"
    for step in ("cut", "report"):
        assert f"{step}: 100%, {edges} of {edges} edges of pass 1, " in err


def test_info(capsys, tmp_path, graph_file):
    run(capsys, "partition", graph_file, tmp_path / "data", "--parts", 2)
    for path, kind in ((graph_file, "leapmpi-graph"), (tmp_path / "data", "leapmpi-dataset")):
        code, out, _ = run(capsys, "info", path, "--json")
        found = json.loads(out)
        assert code == 0
        assert (found["format"], found["vertices"], found["classes"]) == (kind, 60, 3)
        code, out, _ = run(capsys, "info", path)
        assert code == 0
        lines = out.splitlines()
        assert "vertices           60" in lines
        # A value has its meaning beside it; digests and versions are left to --json.
        assert any(re.fullmatch(r"edges  +[\d,]+  +with one entry for each direction", line) for line in lines)
        assert not any(line.startswith(("has_split", "multilabel", "format_version")) for line in lines)
    assert "replication        1." in out
    assert [row["part"] for row in found["part_list"]] == [0, 1]
    assert sum(row["vertices"] for row in found["part_list"]) == 60


def test_overwrite_is_asked_for(capsys, tmp_path, graph_file):
    folder = tmp_path / "data"
    run(capsys, "partition", graph_file, folder, "--parts", 2)
    code, _, err = run(capsys, "partition", graph_file, folder, "--parts", 3)
    assert code == 3
    assert "--overwrite" in err
    assert open_dataset(folder).parts == 2
    assert run(capsys, "partition", graph_file, folder, "--parts", 3, "--overwrite")[0] == 0
    assert open_dataset(folder).parts == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parts", "61"], "only 60 vertices"),
        (["--parts", "0"], "--parts is 0"),
        (["--parts", "many"], "many"),
        (["--parts", "2", "--method", "metsi"], "did you mean 'metis'?"),
        (["--parts", "2", "--sead", "1"], "--seed"),
        (["--parts", "60", "--method", "hash"], "without vertices"),
    ],
)
def test_refusals_leave_nothing(capsys, tmp_path, graph_file, words, message):
    code, out, err = run(capsys, "partition", graph_file, tmp_path / "data", *words)
    assert code != 0
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert [item.name for item in tmp_path.iterdir()] == ["graph.h5"]


def test_damaged_graph_is_not_cut(capsys, tmp_path, graph_file):
    data = bytearray(graph_file.read_bytes())
    at = data.find(random_graph().features.tobytes())
    data[at + 40] ^= 1
    graph_file.write_bytes(data)
    code, _, err = run(capsys, "partition", graph_file, tmp_path / "data", "--parts", 2)
    assert code == 3
    assert "array features does not match" in err
    assert not (tmp_path / "data").exists()


def test_check_names_the_fault(capsys, tmp_path, graph_file):
    run(capsys, "partition", graph_file, tmp_path / "data", "--parts", 2, "--method", "contiguous")
    path = tmp_path / "data/part-00001.h5"
    data = bytearray(path.read_bytes())
    at = data.find(random_graph().features[30:].tobytes())
    data[at + 20 : at + 24] = np.float32(np.nan).tobytes()
    path.write_bytes(data)
    code, _, err = run(capsys, "check", tmp_path / "data")
    assert code == 3
    assert f"{path}: features, row 1, column 0 is nan" in err
    for missing in ("check", "info"):
        assert run(capsys, missing, tmp_path / "none")[0] == 3


@pytest.mark.parametrize(
    ("name", "largest_cut"),
    [("gnnbench-cora/cora.npz", 0.09), ("heterophilous-tolokers/tolokers.npz", 0.26), ("planetoid-citeseer", 0.04)],
)
def test_real_graphs(capsys, tmp_path, test_data, name, largest_cut):
    """METIS on real graphs: the cut stays near what was measured, and every method gives the same graph_uuid."""
    if not (test_data / name).exists():
        pytest.skip(f"no {name} among the real graphs at {test_data} (LEAPMPI_TEST_DATA)")
    graph = tmp_path / "graph.h5"
    splits = ["--splits", "random:0.5,0.25,0.25"] if "cora" in name else []
    assert run(capsys, "import", test_data / name, graph, *splits)[0] == 0
    uuids = set()
    for method, parts in (("metis", 4), ("hash", 3)):
        folder = tmp_path / method
        assert run(capsys, "partition", graph, folder, "--parts", parts, "--method", method)[0] == 0
        assert run(capsys, "check", folder)[0] == 0
        uuids.add(open_dataset(folder).graph_uuid)
    assert len(uuids) == 1
    figures = open_dataset(tmp_path / "metis").attributes
    assert figures["edge_cut_share"] < largest_cut
    assert figures["vertex_balance"] < 1.051
    assert figures["training_balance"] < 1.051
