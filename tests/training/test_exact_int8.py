"""Bags of words in int8 train to the bits of float32."""

from dataclasses import replace

import numpy as np
import pytest

from data_prep.assembly.stored_dtype import as_stored
from data_prep.workspace import Workspace
from leapmpi import Config, train
from leapmpi.dataset.dataset_writer import write_dataset
from tests.support.graphs import random_graph

# Where no kernel is in the cache it compiles those of both types: 17 s of the processor, minutes on a busy machine.
pytestmark = [pytest.mark.compiles, pytest.mark.timeout(900)]


@pytest.mark.parametrize("device", ["cpu", "stand-in"])
def test_bags_of_words_in_int8_train_to_the_bits_of_float32(device, tmp_path):
    graph = random_graph(n=240, degree=6)
    graph.features = (np.random.default_rng(0).random((240, 64)) < 0.1).astype(np.float32)
    small = as_stored(graph.features, "int8", "here", Workspace(tmp_path, 2**30, 1))
    in_bytes = replace(graph, features=np.array(small.rows), feature_scale=small.scale)
    digests = set()
    for name, each in (("float32", graph), ("int8", in_bytes)):
        write_dataset(tmp_path / name, each, np.arange(240) % 2, 2, method="test", figures={}, seed=0)
        values = {"data": str(tmp_path / name), "train.epochs": 2, "train.batch_size": 40, "model.hidden": 8,
                  "sampling.fanout": "4,3", "run.folder": str(tmp_path / f"run-{name}"), "run.log_level": "error",
                  # Rows of float32 in one block may be projected all at once, which adds up in another order.
                  "strategy.remote": "raw", "run.device": device}  # fmt: skip
        digests.add(train(Config.from_values(values)).summary["parameters_digest"])
    assert len(digests) == 1
