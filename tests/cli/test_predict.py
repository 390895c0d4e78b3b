"""`leapmpi predict`: rows in original ids, in every format, after a kill, and of graphs never seen."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import leapmpi
from leapmpi import Config, load_run, train
from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.inference.row_store import StagedRows
from leapmpi.system import atomic_files
from tests.support.graphs import random_graph
from tests.support.launch import PROJECT
from tests.support.whole_graph import whole_outputs

GRAPH = random_graph(n=240, degree=6)


def predicted(capsys, *arguments):
    assert main(["predict", *map(str, arguments), "--json"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    return json.loads(output.splitlines()[-1])


def expected(run, graph=GRAPH):
    """float[n, classes] of the run's best weights, in the order of the graph's vertices."""
    return whole_outputs(run.config, graph, run.weights())


def test_rows_stand_in_the_row_of_their_vertex(small_data, finished_run, capsys, tmp_path):
    found = predicted(capsys, small_data, finished_run.path, "--out", tmp_path / "p.npy")
    rows, ids = np.load(tmp_path / "p.npy"), GRAPH.original_id
    assert (found["rows"], found["columns"], found["dtype"]) == (ids.max() + 1, 3, "float32")
    np.testing.assert_allclose(rows[ids], expected(finished_run), atol=1e-6)
    assert np.isnan(np.delete(rows, ids, axis=0)).all()  # no vertex has these ids


def test_the_asked_vertices_in_their_order(small_data, finished_run, capsys, tmp_path):
    ids = GRAPH.original_id
    chosen = ids[[7, 3, 3, 200, 0]]
    np.save(tmp_path / "ids.npy", chosen)
    out = tmp_path / "p.h5"
    predicted(capsys, small_data, finished_run.path, "--out", out, "--vertices", tmp_path / "ids.npy")
    every = expected(finished_run)
    with h5py.File(out) as file:
        np.testing.assert_allclose(file["predictions"][:], every[[7, 3, 3, 200, 0]], atol=1e-6)
        assert np.array_equal(file["vertices"][:], chosen)
    found = predicted(capsys, small_data, finished_run.path, "--out", out, "--vertices", "val", "--overwrite")
    assert found["rows"] == np.count_nonzero(GRAPH.split == 2)


def test_embeddings_are_rows_of_a_hidden_layer(small_data, finished_run, capsys, tmp_path):
    out = tmp_path / "p.npy"
    found = predicted(capsys, small_data, finished_run.path, "--out", out, "--what", "embeddings")
    assert found["columns"] == 16
    predicted(capsys, small_data, finished_run.path, "--out", tmp_path / "q.npy", "--what", "embeddings", "--layer", 1)
    np.testing.assert_array_equal(np.load(out), np.load(tmp_path / "q.npy"))
    assert np.load(out)[GRAPH.original_id].min() == 0  # after ReLU


def test_from_python(small_data, finished_run, tmp_path):
    found = leapmpi.predict(finished_run, small_data, tmp_path / "p.npy", what="classes", vertices="test")
    assert found["rows"] == len(np.load(tmp_path / "p.npy")) == np.count_nonzero(GRAPH.split == 3)


def test_a_table(small_data, finished_run, capsys, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    predicted(capsys, small_data, finished_run.path, "--out", tmp_path / "p.parquet")
    table = parquet.read_table(tmp_path / "p.parquet")
    assert table["vertex"].to_pylist() == GRAPH.original_id.tolist()
    np.testing.assert_allclose(np.array(table["values"].to_pylist()), expected(finished_run), atol=1e-6)


def test_a_graph_without_labels_that_training_never_saw(finished_run, capsys, tmp_path):
    other = replace(random_graph(n=100, degree=3, seed=5), labels=None, split=None, classes=0)
    write_dataset(tmp_path / "other", other, np.arange(100) % 2, 2, method="test", figures={}, seed=0)
    arguments = [tmp_path / "other", finished_run.path, "--out", tmp_path / "p.npy", "--log-level", "info"]
    assert main(["predict", *map(str, arguments)]) == 0
    assert "holds another graph than the one the run was trained on" in capsys.readouterr().out
    rows = np.load(tmp_path / "p.npy")[other.original_id]
    np.testing.assert_allclose(rows, expected(finished_run, other), atol=1e-6)


@pytest.mark.parametrize("labels", ["of five classes", "of several at once", "of edges too"])
def test_labels_of_the_graph_do_not_matter(labels, finished_run, capsys, tmp_path):
    other, run = random_graph(n=100, degree=3, seed=5, multilabel=labels == "of several at once"), finished_run
    if labels == "of five classes":
        other = replace(other, labels=np.arange(100) % 5, classes=5)
    if labels == "of edges too":
        # Fewer classes of edges than of vertices.
        kinds = EdgeData(labels=np.arange(other.edges, dtype=np.int32) % 2, classes=2)
        other = replace(other, edge_data=kinds)
    write_dataset(tmp_path / "other", other, np.arange(100) % 2, 2, method="test", figures={}, seed=0)
    if labels == "of edges too":
        settings = {"train": {"task": "edge-class", "epochs": 1, "batch_size": 64}, "model.hidden": 8}
        more = {"run": {"folder": str(tmp_path / "run"), "threads": 1, "log_level": "error"}}
        run = train(Config.from_values({**settings, **more, "data": str(tmp_path / "other")}))
    assert main(["predict", str(tmp_path / "other"), str(run.path), "--out", str(tmp_path / "p.npy")]) == 0
    rows = np.load(tmp_path / "p.npy")[other.original_id]
    np.testing.assert_allclose(rows, expected(run, other), atol=1e-6)


def test_a_killed_job_goes_on_from_its_layers(small_data, finished_run, capsys, tmp_path, monkeypatch):
    stage, out = tmp_path / "stage", tmp_path / "p.npy"
    arguments = (small_data, finished_run.path, "--out", out, "--stage", stage)

    # The second layer never begins.
    finish = StagedRows.finish

    def dies(self, *given):
        finish(self, *given)
        raise SystemExit(9)

    with monkeypatch.context() as patch:
        patch.setattr(StagedRows, "finish", dies)
        assert main(["predict", *map(str, arguments)]) == 70
    assert "SystemExit: 9" in capsys.readouterr().err
    assert not out.exists()
    found = predicted(capsys, *arguments, "--resume")
    assert [each["layer"] for each in found["layers"]] == [2]
    np.testing.assert_allclose(np.load(out)[GRAPH.original_id], expected(finished_run), atol=1e-6)
    assert not list(stage.iterdir())

    # Rows of other weights are not used.
    found = predicted(capsys, *arguments, "--resume", "--overwrite", "--weights", "final")
    assert [each["layer"] for each in found["layers"]] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("--out p.txt", 2, "--out p.txt: the name has to end in .h5, .npy, .csv or .parquet"),
        ("--out none/p.npy", 3, "its folder"),
        ("--out p.npy --what rows", 2, "--what rows: expected one of logits, classes, embeddings"),
        ("--out p.npy --layer 1", 2, "--layer 1: it numbers layers from 1, and goes with --what embeddings"),
        ("--out p.npy --what embeddings --layer 3", 2, "layer 3 does not exist, the model has 2"),
        ("--out p.npy --vertices none.npy", 3, "--vertices none.npy: no ids can be read (No such file"),
        ("--out p.npy --vertices ids.npy", 3, "ids.npy: row 1 names vertex 100000, which"),
        ("--out p.npy --memory-limit 1k", 6, "more than --memory-limit 1.0 KiB"),
        ("--out p.npy --resume", 2, "--resume continues from the rows of layers in a folder"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments, code, sentence, small_data, finished_run, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    np.save("ids.npy", np.array([GRAPH.original_id[0], 100_000]))
    assert main(["predict", str(small_data), str(finished_run.path), *arguments.split()]) == code
    errors = capsys.readouterr().err
    assert sentence in errors
    assert len(errors.splitlines()) == 1
    assert [path.name for path in Path().iterdir()] == ["ids.npy"]


def test_a_disk_that_fills_up_leaves_no_file(small_data, finished_run, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("leapmpi.inference.output.raw_files.os.pwrite", full)
    assert main(["predict", str(small_data), str(finished_run.path), "--out", str(tmp_path / "p.npy")]) == 6
    assert "the disk is full or a quota is reached" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_other_widths_are_refused(finished_run, tmp_path, capsys):
    wide = random_graph(n=60)
    wide.features = np.ones((60, 7), np.float32)
    write_dataset(tmp_path / "wide", wide, np.zeros(60, np.int32), 1, method="test", figures={}, seed=0)
    assert main(["predict", str(tmp_path / "wide"), str(finished_run.path), "--out", str(tmp_path / "p.npy")]) == 3
    assert "has 7 features" in capsys.readouterr().err


def test_a_module_of_ones_own(small_data, tmp_path, capsys):
    named = f"{PROJECT}/tests/support/own_module.py:Net"
    values = {"data": str(small_data), "model.name": named, "model.hidden": 8, "train.epochs": 1}
    run = train(Config.from_values({**values, "run": {"folder": str(tmp_path / "run"), "log_level": "error"}}))
    predicted(capsys, small_data, run.path, "--out", tmp_path / "p.npy", "--model", named)
    rows = np.load(tmp_path / "p.npy")[GRAPH.original_id]
    np.testing.assert_allclose(rows, expected(load_run(run.path)), atol=1e-5)
    assert main(["predict", str(small_data), str(run.path), "--out", str(tmp_path / "q.npy")]) == 2
    assert f"add --model {named}" in capsys.readouterr().err


READS_EDGES = """
import torch
from torch import nn


class Sum(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)

    def forward(self, x, edge_index):
        source, target = edge_index
        return self.linear(torch.zeros_like(x).index_add(0, target, x[source]))


class Net(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.layer = Sum(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.layer(x, edge_index) * (1 + edge_index.size(1))


class Blocks(Net):
    def forward(self, x, adjs):
        (edge_index, _, (_, destinations)), = adjs
        return self.layer(x, edge_index)[:destinations]
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Net", "forward itself reads edge_index (size), so that the module cannot be run layer by layer"),
        ("Blocks", "forward takes the graphs of all blocks (adjs), so that it cannot be run layer by layer"),
    ],
)
def test_modules_that_cannot_be_run_layer_by_layer(name, sentence, small_data, tmp_path, capsys):
    (tmp_path / "net.py").write_text(READS_EDGES)
    named = f"{tmp_path}/net.py:{name}"
    values = {"data": str(small_data), "model.name": named, "sampling.fanout": "3", "train.epochs": 1}
    run = train(Config.from_values({**values, "run": {"folder": str(tmp_path / "run"), "log_level": "error"}}))
    out = tmp_path / "p.npy"
    assert main(["predict", str(small_data), str(run.path), "--out", str(out), "--model", named]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("name", ["p.npy", "p.h5"])
def test_a_file_that_appears_meanwhile_is_not_replaced(small_data, finished_run, capsys, tmp_path, monkeypatch, name):
    real, out = atomic_files.put_in_place, tmp_path / name

    def put_in_place(aside, path, replace):
        out.write_text("of another process")
        real(aside, path, replace=replace)

    monkeypatch.setattr(atomic_files, "put_in_place", put_in_place)
    assert main(["predict", str(small_data), str(finished_run.path), "--out", str(out)]) == 3
    assert f"error: {out} exists already: another process made it in the meantime" in capsys.readouterr().err
    assert out.read_text() == "of another process"
    assert list(tmp_path.iterdir()) == [out]
