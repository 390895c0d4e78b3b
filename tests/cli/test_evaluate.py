"""`leapmpi evaluate`: the scores of a run again, exactly; on more ranks in tests/parallel."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from leapmpi import Config, train
from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.inference import batch_outputs
from tests.support.graphs import random_graph


def evaluated(capsys, *arguments):
    assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("weights", ["best", "final"])
def test_the_scores_of_the_run(small_data, finished_run, capsys, weights):
    summary = finished_run.summary
    expected = summary["best"] if weights == "best" else {"epoch": 3, **summary["epochs"][-1]["accuracy"]}
    found = evaluated(capsys, small_data, finished_run.path, "--weights", weights)
    assert found == {"schema": 2, "weights": weights, "metric": "accuracy", **expected}


def test_flags_stand_above_the_run(small_data, finished_run, capsys, monkeypatch):
    monkeypatch.setattr(batch_outputs, "MOST_ROOTS", 7)
    alone = evaluated(capsys, small_data, finished_run.path, "--metric", "f1-micro")
    assert alone["metric"] == "f1-micro"
    assert alone["val"] == finished_run.summary["best"]["val"]  # one label each: the same figure
    everything = evaluated(capsys, small_data, finished_run.path, "--eval-fanout", "all,all")
    assert everything == evaluated(capsys, small_data, finished_run.path, "--eval-fanout", "2147483647,200")


def test_a_line_for_people(small_data, finished_run, capsys):
    assert main(["evaluate", str(small_data), str(finished_run.path)]) == 0
    best = finished_run.summary["best"]
    line = f"best weights (epoch {best['epoch']})  accuracy val {best['val']:.4f} test {best['test']:.4f}\n"
    assert capsys.readouterr().out == line


def test_nothing_is_written(small_data, finished_run, tmp_path, capsys, monkeypatch):
    run = shutil.copytree(finished_run.path, tmp_path / "run")
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    monkeypatch.chdir(tmp_path)
    evaluated(capsys, small_data, run)
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_another_graph_is_noted(small_data, finished_run, tmp_path, capsys):
    graph = random_graph(n=100, degree=6, seed=1)
    folder = tmp_path / "data"
    write_dataset(folder, graph, np.zeros(100, np.int32), 1, method="test", figures={}, seed=0)
    assert main(["evaluate", str(folder), str(finished_run.path), "--log-level", "warning"]) == 0
    assert "holds another graph than the one the run was trained on" in capsys.readouterr().out
    unlisted = replace(graph, split=np.where(graph.split == 1, 1, 0).astype(np.int8))
    write_dataset(tmp_path / "train", unlisted, np.zeros(100, np.int32), 1, method="test", figures={}, seed=0)
    found = evaluated(capsys, tmp_path / "train", finished_run.path, "--log-level", "error")
    assert (found["val"], found["test"]) == (None, None)
    assert main(["evaluate", str(tmp_path / "train"), str(finished_run.path), "--log-level", "error"]) == 0
    assert "nothing to score in val and test; import the graph again with --splits" in capsys.readouterr().out


def test_every_model_of_a_run_of_several(small_data, tmp_path, capsys):
    settings = {"data": str(small_data), "train.epochs": 2, "run.threads": 1}
    varied = {"strategy.vary": ("model.hidden=4,8",), "run.folder": str(tmp_path / "run"), "run.log_level": "error"}
    summary = train(Config.from_values(settings | varied)).summary
    assert main(["evaluate", str(small_data), str(tmp_path / "run"), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    about = {"schema": 2, "weights": "best", "metric": "accuracy"}
    wanted = [{**about, "model": number, **each["best"]} for number, each in enumerate(summary["models"])]
    assert found == wanted
    assert main(["evaluate", str(small_data), str(tmp_path / "run"), "--model", "1"]) == 0
    assert capsys.readouterr().out.startswith("model 1  best weights (epoch ")
    assert main(["evaluate", str(small_data), str(tmp_path / "run"), "--model", "2"]) == 4
    assert "holds the models 0 to 1" in capsys.readouterr().err


def test_a_model_of_a_run_of_one(small_data, finished_run, capsys):
    assert main(["evaluate", str(small_data), str(finished_run.path), "--model", "0"]) == 4
    assert "holds one model; leave --model out" in capsys.readouterr().err
