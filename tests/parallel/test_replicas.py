"""Models that differ, trained together on all ranks: each ends up as its own separate run on one rank does."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from mpi4py import MPI

import leapmpi
from leapmpi.comm.world import start
from leapmpi.config.schema import Config, variations
from leapmpi.exchange.modes.raw import union
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.trainer import Trainer
from leapmpi.training.training_components import components_of, prepare
from tests.support import datasets
from tests.support.equality import here
from tests.support.shared_out import shared_out

EPOCHS = 1


@dataclass(frozen=True)
class Case:
    """What differs between the models, and where they are trained."""

    vary: tuple[str, ...]
    strategy: str
    data: datasets.Variant
    settings: tuple[tuple[str, object], ...] = ()

    def values(self) -> dict:
        """The settings but for data, ranks and what differs."""
        common = {
            "model.hidden": 8, "model.dropout": 0.5, "model.input_dropout": 0.2,
            "sampling.fanout": "3,2", "train.batch_size": 80, "train.epochs": EPOCHS, "train.seed": 3,
            "train.optimizer": "sgd", "train.momentum": 0.9, "train.lr": 0.05, "train.dtype": "float64",
            "strategy.remote": "raw",
        }  # fmt: skip
        return common | dict(self.settings)


SINGLE, MULTI = datasets.LABELS[:2]
CASES = here([
    Case(("model.name=gcn,sage,gat",), "leap", datasets.Variant(SINGLE, "metis", 4)),
    Case(("model.dropout=0,0.5", "train.lr=0.05,0.01"), "pull", datasets.Variant(SINGLE, "lopsided", 4)),
    Case(
        ("model.seed=3,4", "model.hidden=4,60,70"), "leap", datasets.Variant(MULTI, "uneven", 7),
        (("model.input_dropout", 0), ("model.norm", "layer"), ("train.clip_norm", 0.1), ("strategy.cache", 0.1),
         ("train.weight_decay", 0.01)),
    ),
    Case(
        ("model.hidden=4,20", "model.seed=3,4"), "leap", datasets.Variant(SINGLE, "uneven", 7),
        (("model.input_dropout", 0), ("strategy.remote", "sums"), ("model.name", "sage"), ("evaluate.fanout", "3,3")),
    ),
    Case(
        ("model.residual=false,true",), "pull", datasets.Variant(MULTI, "metis", 4),
        (("model.input_dropout", 0), ("strategy.remote", "auto"), ("model.name", "gcn"), ("model.norm", "layer")),
    ),
    Case(
        ("model.hidden=8",), "leap", datasets.Variant(SINGLE, "metis", 4),
        (("model.name", "gat"), ("model.options.attention_dropout", 0.4), ("strategy.prefetch", "0")),
    ),
])  # fmt: skip


@pytest.fixture(scope="module")
def base(world, folder):
    needed = {case.data for case in CASES} | {datasets.whole(case.data.labels) for case in CASES}
    datasets.build(world.comm, folder, needed)
    return folder


def trained(config, world):
    """A trainer that is done."""
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    components = components_of(config, world, loaded)
    trainer = Trainer(components, prepare(components), 0.0)
    for epoch in range(EPOCHS):
        trainer.epoch(epoch)
    return trainer


def separate_runs(case, base, comm):
    """Parameters, losses and last scores of each model trained by itself, shared out among the ranks. Collective."""
    values = {
        "data": str(datasets.whole(case.data.labels).folder(base)),
        "strategy.name": "pull",
        "strategy.remote": "raw",
    }
    together = Config.from_values(case.values() | values | {"strategy.cache": 0, "strategy.vary": case.vary})
    configs = list(variations(together).values())
    alone = start(threads=1, comm=MPI.COMM_SELF)

    def outcome(config):
        run = trained(config, alone)
        return run.ctx.parameters.by_name(), [each["losses"] for each in run.epochs], run.epochs[-1]["accuracy"]

    return shared_out(comm, configs, outcome)


def check_traffic(run):
    """Every root and row is read once for all models; parameters go to all ranks, gradients come home."""
    size, (record,) = run.world.size, run.epochs
    numbers = 8 * sum(replica.layout.count for replica in run.models.replicas) * run.per_epoch
    assert record["bytes"]["parameters"] == record["bytes"]["gradients"] == numbers * (size - 1)
    if record["remote"] != "raw":
        assert record["bytes"]["activations"] == 0
        return
    ctx, rows = run.ctx, dict.fromkeys(("local", "remote", "cached"), 0)
    for iteration in range(run.per_epoch):
        batch = ctx.communicator.broadcast(
            run.components.planned_batches(0)[iteration] if ctx.communicator.rank == 0 else None, "control"
        )
        schedule, key = run.engine.placement.schedule(batch, 0, iteration), DrawKey(TRAIN, ctx.seed, 0, iteration)
        request = ctx.features.request(union(run.engine.draw(schedule, key).micro_batches))
        for place, found in zip(rows, (request.local_ids, request.remote_ids, request.cached_slots), strict=True):
            rows[place] += len(found)
    assert record["rows"] == {place: run.world.comm.allreduce(count) for place, count in rows.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.strategy}-{' '.join(case.vary)}")
def test_each_model_is_what_its_own_run_makes_of_it(world, base, case):
    config = Config.from_values(
        case.values()
        | {"data": str(case.data.folder(base)), "strategy.name": case.strategy}
        | {"strategy.vary": case.vary}
    )
    run = trained(config, world)
    wanted = separate_runs(case, base, world.comm)
    assert len(run.models.replicas) == len(wanted)
    check_traffic(run)
    for replica, (parameters, losses, scores) in zip(run.models.replicas, wanted, strict=True):
        found = replica.layout.by_name()
        whole = np.linalg.norm(np.concatenate([each.reshape(-1) for each in parameters.values()]))
        assert found.keys() == parameters.keys()
        for name, values in parameters.items():
            assert np.linalg.norm(found[name] - values) <= 1e-10 * whole, (replica.label, name)
        for record, each in zip(replica.epochs, losses, strict=True):
            np.testing.assert_allclose(record["losses"], each, rtol=1e-10)
        assert replica.epochs[-1]["accuracy"] == pytest.approx(scores)
        assert replica.best.epoch in range(EPOCHS)
        assert (replica.optimizer is None) == (run.models.replicas.index(replica) % world.size != world.rank)


def test_the_end_says_how_the_scores_of_seeds_spread(world, folder):
    path = folder / "seeds"
    if world.rank == 0:
        path.mkdir()
    world.comm.barrier()
    data = datasets.Variant("single", "hash", 4)
    datasets.build(world.comm, path, {data})
    values = {"data": str(data.folder(path)), "train.epochs": 1, "run.folder": str(path / "run"), "run.threads": 1,
              "run.log_level": "error", "run.device": "cpu", "model.hidden": 8, "sampling.fanout": "3,3",
              "strategy.vary": ("model.seed=0,1,2",)}  # fmt: skip
    summary = leapmpi.train(Config.from_values(values), world.comm).summary
    for split, found in summary["scores_of_models"].items():
        scores = [model["best"][split] for model in summary["models"]]
        assert found == {"mean": pytest.approx(np.mean(scores)), "deviation": pytest.approx(np.std(scores, ddof=1))}
    assert set(summary["scores_of_models"]) == {"val", "test"}
