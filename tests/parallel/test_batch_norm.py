"""`--norm batch`: the steps of a single process, statistics included, whichever ranks share a vertex."""

import dataclasses

import numpy as np
import pytest
import torch
from mpi4py import MPI

from leapmpi.comm.world import start
from leapmpi.engine.batch_rows import shared_out, statistics_bytes
from leapmpi.engine.engine import Engine
from leapmpi.errors import ConfigError
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.phase_timers import PhaseTimers
from tests.support import datasets
from tests.support.equality import Case, Runner, check, references

PLAIN = Case(
    strategy="leap", partition="hash", parts=4, batch="even", fanout="4,3,2", model="deepgcn mean",
    dropout="everywhere", shape="batch norm", labels="single", threads=1, remote="raw", merge="paper", rows="copied",
    cache="none", prefetch=0,
)  # fmt: skip
EVERY_CASE = [
    PLAIN,
    dataclasses.replace(PLAIN, model="film", remote="partial", strategy="pull", batch="three roots"),
    dataclasses.replace(PLAIN, model="deepgcn", remote="partial", partition="uneven", parts=7, prefetch=2),
    dataclasses.replace(PLAIN, model="film mean", remote="projected", batch="larger than the training set"),
    dataclasses.replace(PLAIN, model="sage", strategy="p3", remote="own", fanout="10,10", threads=2),
    dataclasses.replace(PLAIN, model="gin", strategy="pull", remote="partial", batch="one root in the last batch"),
    dataclasses.replace(PLAIN, model="gcn", fanout="all,all", sampler="labor-0"),
    dataclasses.replace(PLAIN, model="deepgcn softmax", strategy="p3", remote="own", batch="three roots"),
]
# Each number of ranks takes a quarter of them.
CASES = EVERY_CASE[MPI.COMM_WORLD.size % 4 :: 4]


@pytest.fixture(scope="module")
def base(world, folder):
    cases = (PLAIN, *CASES)
    datasets.build(world.comm, folder, {case.dataset for case in cases} | {case.alone().dataset for case in cases})
    return folder


@pytest.fixture(scope="module")
def alone(world, base):
    return references(CASES, base, world.comm)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}-{case.remote}-{case.strategy}")
def test_the_steps_are_those_of_a_single_process(case, base, alone, world):
    check(case, Runner(base, world).run(case), alone[case.alone()], world.comm)


def statistics(runner: Runner, case: Case) -> dict[str, np.ndarray]:
    """Those of the model after the steps of `case`. Collective."""
    runner.run(case)
    return {name: each.numpy() for name, each in runner._loaded.ctx.model.statistics().items()}


def test_running_statistics_are_those_of_a_single_process(base, world):
    single = start(threads=1, comm=MPI.COMM_SELF)
    wanted, found = statistics(Runner(base, single), PLAIN.alone()), statistics(Runner(base, world), PLAIN)
    assert len(wanted) == 2 * (3 + 3), "normalised inputs of two layers and the head, and one inside each MLP"
    for name, each in wanted.items():
        assert np.abs(each - name.endswith("variance")).max() > 1e-4, "training has moved them"
        np.testing.assert_allclose(found[name], each, rtol=1e-10, atol=1e-13)


def loaded_on(base, world, case: Case):
    config = case.config(base, world.size)
    return config, load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers()).ctx


def test_every_vertex_of_a_layer_is_counted_by_one_rank(base, world):
    config, ctx = loaded_on(base, world, PLAIN)
    engine, key = Engine(ctx, config.strategy), DrawKey(TRAIN, 1, 0, 0)
    batch = np.arange(0, ctx.rank_offsets[-1], 5)
    minibatch = engine.draw(engine.placement.schedule(batch, 0, 0), key)
    rows = shared_out(ctx, minibatch.micro_batches)
    shared = 0
    for layer, counted in enumerate(rows.counted[1:], start=1):
        dst = minibatch.micro_batches[0].blocks[-layer].dst
        mine = dst if counted is None else dst[counted.numpy()]
        everyone, once = (np.concatenate(world.comm.allgather(each)) for each in (dst, mine))
        assert np.array_equal(np.sort(once), np.unique(everyone))
        shared += len(everyone) - len(once)
    assert shared > 0 or world.size == 1

    # Each normalisation keeps its rows; the largest ones are there twice more in float64, as all are here.
    outputs = [minibatch.micro_batches[0].blocks[-1 - layer].n_dst for layer in range(3)]
    numbers = [*(8 * rows for rows in outputs), *(16 * rows for rows in outputs)]
    assert statistics_bytes(ctx.model, minibatch.micro_batches[0]) == 8 * (sum(numbers) + 2 * max(numbers))


def test_several_time_steps_are_refused_on_all_ranks(base, world):
    config, ctx = loaded_on(base, world, PLAIN)
    steps = config.replaced({"strategy.time_steps": "N"}).strategy
    if world.size == 1:
        assert Engine(ctx, steps).one_time_step
        return
    with pytest.raises(ConfigError, match=f"{world.size} time steps compute them one after the other"):
        Engine(ctx, steps)
    with pytest.raises(ConfigError, match="not offered where models travel"):
        Engine(ctx, config.replaced({"strategy.name": "naive", "strategy.remote": "auto"}).strategy)
