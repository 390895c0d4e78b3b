"""Training on a GPU, where there is one: the losses of the CPU, and the same bits twice."""

import pytest
import torch

from tests.device.test_gpu_way import CASES, trained, written

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_finds_the_losses_of_the_cpu_and_the_same_bits_twice(name, small_data, tmp_path):
    data = written(name, tmp_path / "data") or small_data
    changes = {"train.epochs": 2, "evaluate.limit": 40} | CASES[name]
    once, again = (trained(data, tmp_path / f"cuda {i}", "cuda", changes) for i in range(2))
    # The CPU multiplies in float32 whatever the type.
    expected = trained(data, tmp_path / "cpu", "cpu", changes | {"train.dtype": "float32"})
    rounding = 2e-2 if changes.get("train.dtype") == "bfloat16" else 1e-4
    for found, wanted in zip(once["epochs"], expected["epochs"], strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], rel=rounding)
    assert once["parameters_digest"] == again["parameters_digest"]
