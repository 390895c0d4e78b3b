"""Runs with `--sampler temporal`: scored by what was known, again by `evaluate`, and without times refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from leapmpi import Config, train
from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.errors import ConfigError
from tests.support.graphs import random_graph

SETTINGS = {
    "model": {"hidden": 8},
    "sampling": {"sampler": "temporal", "fanout": [4, 4], "options": ["draw=latest"]},
    "train": {"epochs": 2, "batch_size": 64},
    "evaluate": {"batch_size": 20},
    "run": {"threads": 1, "log_level": "error", "device": "cpu"},
}


def test_a_run_by_time_is_scored_again_as_it_was(tmp_path, capsys):
    graph = random_graph(n=240, degree=6)
    times = EdgeData(time=np.random.default_rng(0).integers(0, 50, graph.edges))
    cut = np.arange(240, dtype=np.int32) % 2
    for name, made in (("timed", replace(graph, edge_data=times)), ("plain", graph)):
        write_dataset(tmp_path / name, made, cut, 2, method="test", figures={}, seed=0)
    config = Config.from_values({**SETTINGS, "data": str(tmp_path / "timed")})
    whole = train(config.replaced({"run.folder": str(tmp_path / "whole")}))

    # A run that goes on after its first epoch ends in the same bits.
    first = config.replaced({"run.folder": str(tmp_path / "parts"), "train.epochs": 1})
    train(first)
    parts = train(first.replaced({"train.epochs": 2}))
    assert [each["accuracy"] for each in parts.summary["epochs"]] == [
        each["accuracy"] for each in whole.summary["epochs"]
    ]
    best = whole.summary["best"]
    assert main(["evaluate", str(tmp_path / "timed"), str(whole.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["val"], found["test"]) == (best["val"], best["test"])
    assert main(["plan", str(tmp_path / "timed"), "--ranks", "2", "--sampler", "temporal", "--strategies", "leap"]) == 0
    with pytest.raises(ConfigError, match="needs edge times") as caught:
        train(config.replaced({"data": str(tmp_path / "plain"), "run.folder": str(tmp_path / "none")}))
    # One rank tells of it.
    assert caught.value.agreed
