"""What is said to fit does, by the same forecasts, and more would not."""

import re

import numpy as np
import pytest

from leapmpi import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.forecast import memory_advice
from leapmpi.forecast.memory_advice import MemoryAdvice
from leapmpi.runs.text import size_text
from leapmpi.tools.forecast import plan
from tests.support.graphs import random_graph


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("advice") / "data"
    parts = np.arange(400, dtype=np.int32) * 8 // 400
    write_dataset(folder, random_graph(400, degree=6), parts, 8, method="hash", figures={}, seed=0)
    return folder


@pytest.fixture
def advice(data):
    """A function from settings to the advice for two ranks."""

    def make(**values):
        given = {"data": str(data), "model.hidden": 8, "train.batch_size": 64, "sampling.fanout": (-1, -1, -1)}
        dataset = open_dataset(data)
        return MemoryAdvice(Config.from_values(given | values), dataset, load_topology(dataset), 2)

    return make


def test_what_fits_is_named_and_does(advice):
    found = advice(**{"strategy.name": "leap", "strategy.remote": "raw"})
    whole = found.iteration_bytes(found.config, 2)
    text = found.sentence(0.6 * whole)
    assert text.startswith("predicted to fit: --batch-size ")
    size = int(re.search(r"--batch-size (\d+)", text)[1])
    needed = found.iteration_bytes(found.config.replaced({"train.batch_size": size}), 2)
    assert needed <= 0.6 * whole
    assert size_text(needed) in text
    assert found.iteration_bytes(found.config.replaced({"train.batch_size": 2 * size}), 2) > 0.6 * whole
    layers = re.search(r"--fanout ([a-z,]+)", text)[1].split(",")
    assert set(layers) == {"all"}
    assert 1 <= len(layers) < 3


def test_more_ranks_take_less_each(advice):
    found = advice(**{"strategy.name": "depcomm", "train.batch_size": 1000})
    text = found.sentence(0.8 * found.iteration_bytes(found.config, 2))
    assert re.search(r"[48] ranks with as much memory each", text)
    assert "--batch-size" not in text


def test_nothing_is_said_where_nothing_fits_or_all_takes_long_to_draw(advice, monkeypatch):
    found = advice(**{"strategy.name": "leap"})
    assert found.sentence(10) == ""
    monkeypatch.setattr(memory_advice, "MOST_EDGES", -1)
    assert found.sentence(1e12) == ""


def test_plan_tells_what_exceeds_the_limit_and_what_fits(data):
    values = {"data": str(data), "strategy.memory_limit": "60k", "train.batch_size": 256, "sampling.fanout": (-1, -1)}
    found = plan(Config.from_values(values | {"model.hidden": 8}), "2", "leap")["too_large"]
    assert len(found) == 1
    assert re.search(r"leap on 2 ranks: .* more than --memory-limit 60k", found[0])
    assert plan(Config.from_values(values | {"strategy.memory_limit": "1G"}), "2", "leap")["too_large"] == []
