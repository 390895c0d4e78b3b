"""Waits of the host in an iteration on a GPU, each listed: a wait leaves the device without work."""

import pytest

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.training.optimizer import Optimizer
from tests.support.stand_in_gpu import gpu, present

WAITS = {
    ("item", "device/lists.py:numbers_within"): 2,  # edges of a hop, by hop
    ("nonzero", "device/lists.py:all_of_short_lists"): 2,  # lists that are longer than the fan-out, by hop
    ("mask", "device/device_frontier.py:add"): 3,  # new vertices, of the roots and by hop
    ("to host", "device/device_sampler.py:sample"): 1,  # vertices, whose rows the host requests
    ("synchronize", "features/shards/staged_rows.py:copy"): 1,  # the buffer of labels
    ("bincount", "nn/kernels/csr_torch.py:transpose"): 1,  # edges by source, for the gradient
    ("to host", "comm/staging.py:outgoing"): 1,  # gradients, to MPI
    ("to device", "comm/staging.py:deliver"): 1,  # their sums
    ("item", "exchange/mode.py:train"): 1,  # the loss
}
"""Most waits of an iteration of a model of two layers, by kind and function, without Triton."""
MORE = {"gat": {("bincount", "nn/kernels/csr_torch.py:transpose"): 2}}
OPERATIONS = {"sage": 370, "gcn": 410, "gat": 540}
"""Most operations on the device in an iteration, without Triton."""


@pytest.mark.parametrize("model", OPERATIONS)
def test_an_iteration_waits_for_nothing_else(model, small_data, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAPMPI_TRITON", "off")
    found, genuine = [], Optimizer.step

    def step(self, iteration):
        genuine(self, iteration)
        found.append((gpu.waits.copy(), gpu.operations.total()))

    monkeypatch.setattr(Optimizer, "step", step)
    values = {"data": str(small_data), "train.epochs": 1, "train.batch_size": 15, "model.hidden": 8,
              "model.name": model, "sampling.fanout": "4,3", "strategy.name": "leap", "strategy.remote": "raw",
              "run.threads": 1, "evaluate.every": 0, "run.folder": str(tmp_path), "run.log_level": "error",
              "run.device": "cuda"}  # fmt: skip
    with present():
        leapmpi.train(Config.from_values(values))
    (before, operations), (after, in_all) = found[-2:]
    waits, most = after - before, WAITS | MORE.get(model, {})
    assert {each: number for each, number in waits.items() if number > most.get(each, 0)} == {}
    assert in_all - operations <= OPERATIONS[model]
