"""Runs of a regression, with class weights, and such as stop early: what they record, and how they restart."""

import json
from dataclasses import replace

import numpy as np
import pytest

from leapmpi import Config, train
from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.engine.engine import Engine
from leapmpi.errors import ConfigError, DataError, Interrupted, RunFolderError
from tests.support.graphs import random_graph

SETTINGS = {
    "model": {"hidden": 16},
    "train": {"epochs": 30, "batch_size": 64, "lr": 0.03},
    "run": {"threads": 1, "log_level": "error", "device": "cpu"},
}


def config(data, folder, **more) -> Config:
    return Config.from_values({**SETTINGS, "data": str(data)}).replaced({"run.folder": str(folder), **more})


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """Two targets that follow from the features, one of them large and sometimes unknown."""
    graph = random_graph(n=240, degree=6)
    values = graph.features.astype(np.float64) @ np.random.default_rng(1).standard_normal((5, 2)) * [1, 1e5] + [0, 1e6]
    values[::7, 1] = np.nan
    folder = tmp_path_factory.mktemp("targets") / "data"
    graph = replace(graph, labels=values.astype(np.float32), classes=2, regression=True)
    write_dataset(folder, graph, np.arange(240, dtype=np.int32) % 2, 2, method="test", figures={}, seed=0)
    return folder


def test_a_regression_learns_its_targets(targets, tmp_path, capsys):
    run = train(config(targets, tmp_path / "run", **{"train.epochs": 15}))
    best, first = run.summary["best"], run.summary["epochs"][0]
    assert run.summary["metric"] == "mse"
    assert best["val"] == min(each["accuracy"]["val"] for each in run.summary["epochs"])
    assert best["val"] < 0.5 * first["trivial"]["val"]
    flags = ["--metric", "r2,mse", "--per-class", "--json"]
    assert main(["evaluate", str(targets), str(run.path), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["mse"]["val"] == pytest.approx(best["val"], rel=1e-12)
    assert found["val"] == found["metrics"]["r2"]["val"] == pytest.approx(np.mean(found["classes"]["val"]["r2"]))
    assert main(["evaluate", str(targets), str(run.path), "--metric", "accuracy"]) == 2
    assert "accuracy is not defined for regression data; use mae, mse, r2 or rmse" in capsys.readouterr().err


def test_one_score_for_all_vertices_ranks_nothing(tmp_path):
    graph = random_graph(n=240, degree=6)
    graph = replace(graph, labels=graph.labels % 2, classes=2)
    write_dataset(tmp_path / "data", graph, np.zeros(240, np.int32), 1, method="test", figures={}, seed=0)
    run = train(config(tmp_path / "data", tmp_path / "run", **{"train.epochs": 1, "evaluate.metric": "roc-auc"}))
    assert run.summary["epochs"][0]["trivial"]["val"] == 0.5


def test_training_stops_early_where_a_run_without_restart_would(targets, tmp_path, monkeypatch):
    settings = {"train.lr": 0.3, "train.early_stop": 2, "run.checkpoint_every": "1"}
    whole = train(config(targets, tmp_path / "whole", **settings))
    epochs = whole.summary["epochs"]
    assert whole.summary["stopped_early"] == len(epochs) == whole.summary["best"]["epoch"] + 2 < 30
    assert len([line for line in whole.metrics() if line["event"] == "epoch"]) == len(epochs)

    # Stopped between the last two evaluations, when one of them has counted.
    genuine = Engine.forward_backward

    def step(engine, minibatch):
        if minibatch.schedule.epoch == len(epochs) - 1 and minibatch.schedule.iteration == 1:
            raise KeyboardInterrupt
        return genuine(engine, minibatch)

    monkeypatch.setattr(Engine, "forward_backward", step)
    with pytest.raises((Interrupted, KeyboardInterrupt)):
        train(config(targets, tmp_path / "cut", **settings))
    monkeypatch.setattr(Engine, "forward_backward", genuine)
    cut = train(config(targets, tmp_path / "cut", **settings))
    assert cut.summary["restarts"] == 1
    assert cut.summary["stopped_early"] == len(epochs)
    assert cut.summary["parameters_digest"] == whole.summary["parameters_digest"]

    # A finished one goes on with more patience only.
    with pytest.raises(RunFolderError, match="stopped early, 2 evaluations after its best epoch"):
        train(config(targets, tmp_path / "cut", **settings))
    more = train(config(targets, tmp_path / "cut", **{**settings, "train.early_stop": 3}))
    assert len(more.summary["epochs"]) > len(epochs)


def test_models_that_differ_stop_when_all_have(targets, tmp_path):
    varied = {"strategy.vary": ("train.lr=0.1,0.3",), "train.early_stop": 2}
    run = train(config(targets, tmp_path / "run", **varied))
    best = [each["best"]["epoch"] for each in run.summary["models"]]
    assert run.summary["stopped_early"] == max(best) + 2 == len(run.summary["epochs"])


def test_early_stop_needs_something_to_stop_by(small_data, tmp_path):
    with pytest.raises(ConfigError, match="give --eval-every 1"):
        config(small_data, tmp_path / "run", **{"train.early_stop": 2, "evaluate.every": 0})


def test_class_weights_are_given_or_follow_from_the_training_set(small_data, tmp_path):
    (tmp_path / "weights.txt").write_text("1\n2\n0.5\n")
    settings = {"train.epochs": 1}
    listed = train(config(small_data, tmp_path / "a", **settings, **{"train.class_weights": "1,2,0.5"}))
    file = {**settings, "train.class_weights": str(tmp_path / "weights.txt")}
    read = train(config(small_data, tmp_path / "b", **file))
    balanced = train(config(small_data, tmp_path / "c", **settings, **{"train.class_weights": "balanced"}))
    losses = [run.summary["epochs"][0]["loss"] for run in (listed, read, balanced)]
    assert losses[0] == losses[1] != losses[2]

    # A run goes on with the same weights only.
    (tmp_path / "weights.txt").write_text("1 2 3")
    with pytest.raises(DataError, match="other class weights"):
        train(config(small_data, tmp_path / "b", **{**file, "train.epochs": 2}))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("0,0,0", "all are 0"),
        ("1,2", "there are 2 weights for 3 classes"),
        ("1,2,-1", "that of class 2 is -1.0; expected 0 or more"),
        ("nowhere.txt", "neither balanced, nor numbers separated by commas, nor a file"),
    ],
)
def test_class_weights_that_are_refused(small_data, tmp_path, weights, message):
    with pytest.raises(ConfigError, match=message):
        train(config(small_data, tmp_path / "run", **{"train.class_weights": weights}))
    assert not (tmp_path / "run").exists()
