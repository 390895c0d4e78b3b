"""`leapmpi-prep compare`: methods side by side, each in its own process; one that fails does not end the others."""

import json

import pytest

from data_prep.cli import main
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph_file import write_graph
from tests.support.graphs import communities, random_graph


def test_methods_side_by_side(capsys, tmp_path):
    write_graph(tmp_path / "graph.h5", communities())
    words = ["compare", str(tmp_path / "graph.h5"), "--parts", "100", "--methods", "ldg,hash", "--json"]
    assert main([*words, "--fanout", "3"]) == 0
    ldg, hashed = json.loads(capsys.readouterr().out)
    assert ldg["edge_cut"] == partition_graph(communities(), PartitionRequest((100,), "ldg", 0)).figures()["edge_cut"]
    assert 0 < ldg["micrograph_locality"] < 1
    assert ldg["seconds"] > 0
    assert ldg["memory"] > 2**20
    assert "leaves part" in hashed["error"]


def test_all_methods_fail(capsys, tmp_path):
    write_graph(tmp_path / "graph.h5", random_graph())
    assert main(["compare", str(tmp_path / "graph.h5"), "--parts", "60", "--methods", "hash"]) == 3
    assert capsys.readouterr().out.startswith("hash: method hash leaves part")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--methods", "ldg,fenel"], "did you mean 'fennel'"), (["--methods", ","], "names no method")],
)
def test_refused_before_the_work(capsys, tmp_path, words, message):
    assert main(["compare", str(tmp_path / "none.h5"), "--parts", "2", *words]) == 2
    assert message in capsys.readouterr().err
