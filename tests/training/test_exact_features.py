"""Bags of words stored in fewer bytes train to the bits of float32, on the host and on the stand-in for a device."""

from dataclasses import replace

import numpy as np
import pytest

from data_prep.assembly.stored_dtype import as_stored
from data_prep.workspace import Workspace
from leapmpi import Config, train
from leapmpi.dataset.dataset_writer import write_dataset
from tests.support.graphs import random_graph

# Where no kernel is in the cache it compiles those of all types: 30 s of the processor, minutes on a busy machine.
pytestmark = [pytest.mark.compiles, pytest.mark.timeout(900)]


@pytest.mark.parametrize("device", ["cpu", "stand-in"])
def test_bags_of_words_in_fewer_bytes_train_to_the_bits_of_float32(device, tmp_path):
    graph = random_graph(n=240, degree=6)
    graph.features = (np.random.default_rng(0).random((240, 64)) < 0.1).astype(np.float32)
    graphs = {"float32": graph}
    for name in ("int8", "float16", "bfloat16"):
        small = as_stored(graph.features, name, "here", Workspace(tmp_path, 2**30, 1))
        graphs[name] = replace(graph, features=np.array(small.rows), feature_scale=small.scale)
    digests = {}
    for name, each in graphs.items():
        write_dataset(tmp_path / name, each, np.arange(240) % 2, 2, method="test", figures={}, seed=0)
        values = {"data": str(tmp_path / name), "train.epochs": 2, "train.batch_size": 40, "model.hidden": 8,
                  "sampling.fanout": "4,3", "run.folder": str(tmp_path / f"run-{name}"), "run.log_level": "error",
                  # Rows of float32 in one block may be projected all at once, which adds up in another order.
                  "strategy.remote": "raw", "run.device": device}  # fmt: skip
        digests[name] = train(Config.from_values(values)).summary["parameters_digest"]
    assert len(set(digests.values())) == 1, digests
