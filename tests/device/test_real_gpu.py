"""Training on a GPU, where there is one: the losses of the CPU, and the same bits twice."""

import pytest
import torch

import leapmpi
from leapmpi.config.schema import Config
from tests.device.test_gpu_way import CASES, written

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def trained(data, folder, device, changes):
    """Return the summary of two epochs on `device`."""
    values = {"data": str(data), "train.epochs": 2, "train.batch_size": 40, "model.hidden": 8,
              "sampling.fanout": "4,3", "strategy.name": "leap", "run.threads": 1, "evaluate.limit": 40,
              "run.folder": str(folder), "run.log_level": "error", "run.device": device}  # fmt: skip
    return leapmpi.train(Config.from_values(values | changes)).summary


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_finds_the_losses_of_the_cpu_and_the_same_bits_twice(name, small_data, tmp_path):
    data, changes = written(name, tmp_path / "data") or small_data, CASES[name]
    once, again = (trained(data, tmp_path / f"cuda {i}", "cuda", changes) for i in range(2))
    # The CPU multiplies in float32 whatever the type.
    expected = trained(data, tmp_path / "cpu", "cpu", changes | {"train.dtype": "float32"})
    rounding = 2e-2 if changes.get("train.dtype") == "bfloat16" else 1e-4
    for found, wanted in zip(once["epochs"], expected["epochs"], strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], rel=rounding)
    assert once["parameters_digest"] == again["parameters_digest"]
