"""Training on a stand-in for a GPU on every rank: the steps of the CPU that stands in, and what MPI may be given."""

import os

import numpy as np
import pytest

import leapmpi
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.config.schema import Config
from leapmpi.session import setup
from tests.support import datasets
from tests.support.device_mpi import ContractComm
from tests.support.equality import here
from tests.support.stand_in_gpu import DeviceTensor, Refused, present

EVEN = datasets.Variant("single", "metis", 4)
CASES = {
    "leap, ring, mixed": {"strategy.time_steps": "N", "strategy.remote": "mixed"},
    "pull, raw, prefetch": {"strategy.name": "pull", "strategy.remote": "raw", "strategy.prefetch": 2},
    "p3": {"strategy.name": "p3"},
}


@pytest.fixture(scope="module")
def train(world, folder):
    """A function that trains on the device of that name; the digest of the weights, and the communicators made."""
    datasets.build(world.comm, folder, {EVEN})

    def run(name, device, path="host", **changes):
        values = {"data": str(EVEN.folder(folder)), "train.epochs": 1, "train.batch_size": 120, "model.hidden": 8,
                  "sampling.fanout": "4,3", "strategy.name": "leap", "run.threads": 1, "run.mpi_device_path": path,
                  "run.folder": str(folder / name), "run.log_level": "error", "run.device": device,
                  "evaluate.limit": 40}  # fmt: skip
        made = []

        def contracted(comm, direct, ahead):
            made.extend(ContractComm(each, direct) for each in (comm, *ahead))
            return MPICommunicator(made[0], direct=direct, ahead=made[1:])

        world.comm.barrier()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(setup, "MPICommunicator", contracted)
            found = leapmpi.train(Config.from_values(values | changes), world.comm)
        world.comm.barrier()
        return found.summary["parameters_digest"], made

    return run


# Trainings on the stand-in take long: tests/soak takes all of them on every number of ranks.
@pytest.mark.parametrize("name", CASES if "LEAPMPI_SOAK" in os.environ else here(list(CASES)))
def test_a_gpu_takes_the_steps_of_its_stand_in_by_staging_and_directly(name, train, world):
    expected, _ = train(f"{name}, stand-in", "stand-in", **CASES[name])
    for path in ("host", "cuda"):
        with present():
            found, comms = train(f"{name}, {path}", "cuda", path, **CASES[name])
        assert found == expected, path
        sent = sum(comm.messages["device"] for comm in comms)
        assert bool(sent) == (path == "cuda" and world.size > 1)


@pytest.fixture(params=[True, False], ids=["direct", "staged"])
def communicator(request, world_comm):
    return MPICommunicator(ContractComm(world_comm, request.param), direct=request.param)


def test_all_that_carries_device_memory_takes_one_path(communicator):
    rank, size = communicator.rank, communicator.size
    with present():
        flat = DeviceTensor.of(np.full(7, rank + 1.0))
        communicator.all_reduce(flat)
        np.testing.assert_array_equal(flat.cpu().numpy(), np.full(7, size * (size + 1) / 2))
        state = DeviceTensor.of(np.full(5, float(rank)))
        communicator.ring_hop(state, (("parameters", state.nbytes),))
        np.testing.assert_array_equal(state.cpu().numpy(), np.full(5, float((rank + 1) % size)))
        rows, counts = DeviceTensor.of(np.full((size, 3), float(rank))), np.ones(size, np.int64)
        arrived = DeviceTensor.of(np.zeros((size, 3)))
        communicator.exchange(rows, counts, arrived, counts, "features")
        np.testing.assert_array_equal(arrived.cpu().numpy()[:, 0], np.arange(size))
    others = {"device", "host"} - {"device" if communicator.staging.direct else "host"}
    assert not any(communicator.comm.messages[each] for each in others)
    assert bool(communicator.comm.messages) == (size > 1)


def test_each_kind_of_mpi_refuses_what_the_other_takes(world_comm):
    if world_comm.size == 1:
        return
    with present():
        state = DeviceTensor.of(np.zeros(3))
        wrong = MPICommunicator(ContractComm(world_comm, aware=False), direct=True)
        with pytest.raises(Refused, match="not CUDA-aware"):
            wrong.ring_hop(state, (("parameters", state.nbytes),))
