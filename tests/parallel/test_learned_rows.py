"""Learned rows: gradients of rows are those of a single process, and a run goes on to the bit.

With LEAPMPI_SOAK set, for all that goes together (tests/soak/test_parallel_cases.py).
"""

import os
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from mpi4py import MPI

from leapmpi import train
from leapmpi.comm.world import start
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.engine.ahead.interleaved_prefetcher import InterleavedPrefetcher
from leapmpi.engine.engine import Engine
from leapmpi.features.learned_rows import IDS, ROWS
from leapmpi.job.run_evaluation import evaluate
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.optimizer import Optimizer
from tests.support.graphs import random_graph
from tests.support.prefetching import prepared_at_once
from tests.support.traffic import forecast_traffic

PARTS = {"in turn": lambda n: np.arange(n) % 4, "in blocks": lambda n: np.arange(n) * 4 // n}
SETTINGS = {
    "model": {"hidden": 8, "missing_features": "learned:6", "dropout": 0.3, "input_dropout": 0.2},
    "sampling": {"fanout": "3,2"},
    "train": {"batch_size": 24, "lr": 0.01, "seed": 3, "dtype": "float64", "weight_decay": 0.01, "clip_norm": 0.05},
    "run": {"threads": 1, "log_level": "error", "device": "cpu", "checkpoint_every": "1"},
}
RAW, PARTIAL, PROJECTED, MIXED = ({"strategy.remote": name} for name in ("raw", "partial", "projected", "mixed"))
STRATEGIES = {
    "one step": {},
    "ring": {"strategy.time_steps": "N", "train.optimizer": "adamw"},
    "pull": {"strategy.name": "pull"},
}
FEW = {
    3: [("sage", "in turn", RAW, "one step"), ("gat", "in blocks", RAW, "ring"), ("gcn", "in blocks", PARTIAL, "ring")],
    4: [
        ("gat", "in blocks", PARTIAL, "one step"),
        ("gcn", "in turn", RAW, "pull"),
        ("film", "in blocks", PARTIAL, "pull"),
        ("gat", "in turn", PROJECTED, "one step"),
        ("sage", "in blocks", MIXED, "ring"),
    ],
}
"""By number of ranks."""

SOAKS = "LEAPMPI_SOAK" in os.environ
"""Whether all that goes together is tried."""

PRODUCT = list(product(("sage", "gcn", "gat", "max"), PARTS, (RAW, PARTIAL, PROJECTED), STRATEGIES))


@pytest.fixture(scope="module")
def base(folder, world):
    """The same graph without features, cut in two ways."""

    def write():
        graph = replace(random_graph(n=160, degree=6), features=None)
        for name, part_of in PARTS.items():
            write_dataset(folder / name, graph, part_of(160), 4, method="test", figures={}, seed=0)

    world.on_root(write)
    return folder


def trained(config, world):
    """Loss, gradients, and the rows with their gradients by original id, of each of three iterations. Collective."""
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    ctx, learned = loaded.ctx, loaded.ctx.learned
    engine, communicator = Engine(ctx, config.strategy), ctx.communicator
    optimizer = Optimizer(config.train, ctx.parameters, 1, learned, communicator)
    found = []
    for number, batch in enumerate(ctx.sampler.batches(loaded.dataset.splits.train, 3, 0, 24)[:3]):
        minibatch = engine.plan(batch if world.rank == 0 else None, 0, number)
        communicator.byte_counters.take()
        engine.fetch(minibatch)
        ctx.parameters.gradients.zero_()
        loss = engine.forward_backward(minibatch)
        sent, _ = communicator.byte_counters.take()
        # What plan says of this iteration.
        planned = communicator.comm.bcast(minibatch.schedule), minibatch.key
        traffic = forecast_traffic(config, loaded.dataset, loaded.topology, world.size, *planned)
        for kind in ("features", "row gradients", "activations"):
            assert sent[kind] == traffic.sent[kind][world.rank].sum(), kind
        communicator.all_reduce(ctx.parameters.shared_gradients)
        own = dict(zip(learned.original[learned.touched].tolist(), learned.gradients.copy(), strict=True))
        by_vertex = {vertex: each for part in world.comm.allgather(own) for vertex, each in part.items()}
        gradients = ctx.parameters.gradients.numpy().copy()
        optimizer.step(number)
        rows = learned.gathered(communicator).get(ROWS)
        found.append((sum(world.comm.allgather(loss)), gradients, by_vertex, rows))
    return found


@pytest.mark.parametrize("case", PRODUCT if SOAKS else FEW.get(MPI.COMM_WORLD.size, []), ids=str)
def test_gradients_of_rows_are_those_of_a_single_process(case, base, world):
    model, partition, remote, strategy = case
    chosen = {"model.name": "sage", "model.options.aggregate": "max"} if model == "max" else {"model.name": model}
    chosen |= {"model.options.heads": 2} if model == "gat" else {}
    settings = {"data": str(base / partition), **chosen, **remote, **STRATEGIES[strategy]}
    config = Config.from_values(SETTINGS).replaced(settings)
    alone = config.replaced({"strategy.name": "leap", "strategy.time_steps": "1", "strategy.remote": "raw"})
    wanted = trained(alone, start(threads=1, comm=MPI.COMM_SELF)) if world.rank == 0 else []
    found = trained(config, world)
    if world.rank:
        return
    for (loss, gradients, rows, values), (loss_alone, gradients_alone, rows_alone, values_alone) in zip(
        found, wanted, strict=True
    ):
        np.testing.assert_allclose(loss, loss_alone, rtol=1e-10)
        assert np.linalg.norm(gradients - gradients_alone) <= 1e-10 * np.linalg.norm(gradients_alone)
        # The same rows are moved, by the same gradients.
        assert rows.keys() == rows_alone.keys()
        vertices = sorted(rows)
        got, due = (np.stack([each[vertex] for vertex in vertices]) for each in (rows, rows_alone))
        assert np.linalg.norm(got - due) <= 1e-10 * np.linalg.norm(due) > 0
        np.testing.assert_allclose(values, values_alone, atol=1e-9)


def test_a_run_goes_on_to_the_bit_and_on_other_ranks_and_parts(base, world, folder):
    if world.size != 2 and not SOAKS:
        pytest.skip("2 ranks tell what others would")
    values = {"data": str(base / "in blocks"), "train.epochs": 2, "strategy.remote": "raw"}
    config = Config.from_values(SETTINGS).replaced(values)
    whole = train(config.replaced({"run.folder": str(folder / "whole")}), world.comm)
    cut, moved = (config.replaced({"run.folder": str(folder / name)}) for name in ("cut", "moved"))
    train(cut.replaced({"train.epochs": 1}), world.comm)
    world.on_root(lambda: shutil.copytree(folder / "cut", folder / "moved"))
    again = train(cut, world.comm)
    assert again.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert again.summary["best"] == whole.summary["best"]
    if world.rank:
        return

    # One rank takes up the rows of all, of another partition; and weights files hold them by original ids.
    elsewhere = moved.replaced({"data": str(base / "in turn")})
    wanted, found = whole.weights("final"), train(elsewhere, MPI.COMM_SELF).weights("final")
    assert found.keys() == wanted.keys() > {ROWS, IDS}
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=1e-8)
    best = again.summary["best"]
    (scores,) = evaluate([(elsewhere, again)], comm=MPI.COMM_SELF)
    assert (scores["val"], scores["test"]) == (best["val"], best["test"])


@pytest.mark.parametrize("strategy", ["owner", "leap"])
def test_rows_are_those_that_steps_have_moved_however_far_ahead_one_prepares(
    strategy, base, world, folder, monkeypatch
):
    values = {"data": str(base / "in turn"), "train.epochs": 2, "strategy.name": strategy, "strategy.remote": "auto"}
    if strategy == "leap":
        values["strategy.remote"] = "partial"
    config, digests = Config.from_values(SETTINGS).replaced(values), set()
    monkeypatch.setattr(InterleavedPrefetcher, "_allow", prepared_at_once)
    for depth in ("0", "1", "2", "auto"):
        where = {"run.folder": str(folder / f"{strategy}-{depth}"), "strategy.prefetch": depth}
        run = train(config.replaced(where), world.comm)
        losses = tuple(epoch["loss"] for epoch in run.summary["epochs"])
        sent = tuple(tuple(sorted(epoch["bytes"].items())) for epoch in run.summary["epochs"])
        digests.add((run.summary["parameters_digest"], losses, sent))
    assert len(digests) == 1
    depths = {"auto": min(1, world.size - 1), "2": 2}
    assert run.summary["epochs"][0]["prefetch"] == depths["auto"]
