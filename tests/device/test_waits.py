"""Waits of the host in an iteration on a GPU, each listed, and operations by phase: both leave a device idle."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.launch import PROJECT
from tests.support.launch_counts import counted
from tests.support.triton_launches import WHY_SKIPPED

WAITS = {
    ("item", "device/lists.py:numbers_within"): 2,  # edges of a hop, by hop
    ("nonzero", "device/lists.py:all_of_short_lists"): 2,  # lists that are longer than the fan-out, by hop
    ("mask", "device/device_frontier.py:add"): 3,  # new vertices, of the roots and by hop
    ("to host", "device/device_sampler.py:sample"): 1,  # vertices, whose rows the host requests
    ("synchronize", "features/shards/staged_rows.py:copy"): 1,  # the buffer of labels
    ("bincount", "nn/kernels/csr_torch.py:_transposed"): 1,  # edges by source, for the gradient
    ("to host", "comm/staging.py:outgoing"): 1,  # gradients, to MPI
    ("to device", "comm/staging.py:deliver"): 1,  # their sums
    ("item", "exchange/mode.py:train"): 1,  # the loss
}
"""Most waits of an iteration of a model of two layers, by kind and function, without Triton."""
MORE = {"gat": {("bincount", "nn/kernels/csr_torch.py:_transposed"): 2}}
LAYERS = {"sage": 147, "gcn": 204, "gat": 338}
OPERATIONS = {"draws": 158, "numbering": 54, "exchange": 2, "loss": 3, "optimizer": 2}
"""Most operations of an iteration by phase without Triton, those of layers by model. Half of these are for dropout."""
IN_TRITON = {"draws": 10, "numbering": 10, "exchange": 2}
STEP = 41
"""Most operations where Triton's kernels serve, and of the step: layers, loss and optimizer, forward and backward."""


@pytest.mark.parametrize("model", LAYERS)
def test_an_iteration_waits_for_nothing_else(model, small_data, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAPMPI_TRITON", "off")
    phases, waits = counted(small_data, tmp_path, model)
    most = WAITS | MORE.get(model, {})
    assert {each: number for each, number in waits.items() if number > most.get(each, 0)} == {}
    assert above(phases, OPERATIONS | {"layers": LAYERS[model]}) == {}


@pytest.mark.timeout(600)  # the interpreter is slow on a loaded machine
def test_kernels_of_triton_take_few_launches(tmp_path):
    pytest.importorskip("triton", reason=WHY_SKIPPED)
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.launch_counts", str(tmp_path), "sage", "gcn"]
    env = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    job = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, env=env)
    assert job.returncode == 0, job.stdout + job.stderr
    for line in job.stdout.splitlines():
        phases = json.loads(line)
        step = sum(phases.pop(each) for each in ("layers", "loss", "optimizer"))
        assert above(phases, IN_TRITON) == {}
        assert step <= STEP


def above(found, most):
    """Return what is found more often than `most` says."""
    return {each: number for each, number in found.items() if number > most.get(each, 0)}
