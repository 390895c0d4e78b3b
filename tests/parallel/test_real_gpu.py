"""Training on GPUs, where there are some, shared by ranks: the losses of the CPU, by staging and directly."""

import pytest
import torch

import leapmpi
from leapmpi.comm.world import cuda_aware, load_mpi
from leapmpi.config.schema import Config
from tests.support import datasets

EVEN = datasets.Variant("single", "metis", 4)
FULL = {"train.batch_size": "full", "sampling.fanout": "all,all"}
CASES = {
    "leap, ring": {"strategy.name": "leap", "strategy.time_steps": "N"},
    **{form: {"strategy.name": "leap", "strategy.remote": form} for form in ("raw", "sums", "projected", "partial")},
    "leap, mixed, prefetch": {"strategy.name": "leap", "strategy.remote": "mixed", "strategy.prefetch": 2},
    "sharded": {"strategy.name": "leap", "run.topology": "sharded"},
    **{name: {"strategy.name": name} for name in ("pull", "naive", "p3", "owner")},
    **{name: FULL | {"strategy.name": name} for name in ("depcomm", "hybrid")},
}
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.fixture(scope="module")
def losses(world, folder):
    """A function that trains on the device of that name, and returns the loss of each epoch."""
    datasets.build(world.comm, folder, {EVEN})

    def run(name, device, path, changes):
        values = {"data": str(EVEN.folder(folder)), "train.epochs": 2, "train.batch_size": 120, "model.hidden": 8,
                  "sampling.fanout": "4,3", "run.threads": 1, "run.mpi_device_path": path,
                  "run.folder": str(folder / name), "run.log_level": "error", "run.device": device,
                  "evaluate.limit": 40}  # fmt: skip
        world.comm.barrier()
        found = leapmpi.train(Config.from_values(values | changes), world.comm)
        world.comm.barrier()
        return [each["loss"] for each in found.summary["epochs"]]

    return run


@pytest.mark.parametrize("name", CASES)
def test_gpus_find_the_losses_of_the_cpu(name, losses):
    expected = losses(f"{name}, cpu", "cpu", "auto", CASES[name])
    for path in ("host", "cuda") if cuda_aware(load_mpi())[0] else ("host",):
        assert losses(f"{name}, {path}", "cuda", path, CASES[name]) == pytest.approx(expected, rel=1e-4), path
