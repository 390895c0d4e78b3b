"""Link prediction on real ranks: gradients and scores are those of one process, and no block holds a target edge."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from mpi4py import MPI

from data_prep.assembly.split_edges import split_edges
from leapmpi.comm.world import start
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.run_training import make_trainer
from leapmpi.training.setup import load, open_for_training
from tests.support import datasets
from tests.support.draw_digest import block_edges
from tests.support.equality import here
from tests.support.shared_out import shared_out

ROUNDS = ((0, 0), (1, 2))
PLAIN = {
    "train.task": "link", "train.dtype": "float64", "train.batch_size": 40, "train.seed": 3, "train.optimizer": "sgd",
    "model.hidden": 8, "sampling.fanout": "4,3", "model.dropout": 0.5, "link.eval_negatives": "20",
}  # fmt: skip
OTHER = {
    "link.scorer": "mlp", "link.negatives": "degree", "link.negatives_per_edge": 2, "model.name": "gcn",
    "sampling.sampler": "labor-0", "link.eval_negatives": "all",
}  # fmt: skip
THIRD = {
    "link.scorer": "distmult", "link.negatives": "in-batch", "link.negatives_per_edge": 3, "model.name": "gat",
    "sampling.sampler": "weighted", "sampling.fanout": "all,2", "model.heads": 2,
}  # fmt: skip
TIMED = {"sampling.sampler": "temporal", "sampling.options": ["window=30"]}
RING = {"strategy.time_steps": "N"}
CASES = {
    "leap": (PLAIN, {"strategy.remote": "raw"}),
    "ring": (PLAIN, {"strategy.remote": "projected"} | RING),
    "pull": (PLAIN, {"strategy.name": "pull", "strategy.remote": "partial"}),
    "p3": (PLAIN, {"strategy.name": "p3"}),
    "partial": (PLAIN | OTHER, {"strategy.remote": "partial", "strategy.balance": "on"}),
    "pulled mlp": (PLAIN | OTHER, {"strategy.name": "pull", "strategy.remote": "raw"}),
    "third": (PLAIN | THIRD, {"strategy.remote": "projected"} | RING),
    "temporal": (PLAIN | TIMED, {"strategy.remote": "partial"} | RING),
}
HERE = here(list(CASES))


@pytest.fixture(scope="module")
def base(world, folder):
    if world.rank == 0:
        graph = datasets.make_graph("single, edges with data")
        times = np.random.default_rng(6).integers(0, 50, graph.edges)
        carried = replace(graph.edge_data, time=times)
        graph = split_edges(replace(graph, attributes={"directed": True}, edge_data=carried), (0.8, 0.1, 0.1), 5)
        for partition, parts in (("uneven", 4), (datasets.WHOLE, 1)):
            cut = np.zeros(graph.vertices, np.int32) if parts == 1 else datasets.assign(graph, partition, parts)
            write_dataset(folder / partition, graph, cut, parts, method=partition, figures={}, seed=1)
    world.comm.barrier()
    return folder


def outcome(values: dict, world) -> list[tuple[dict, float]]:
    """Gradients and loss of each round over all ranks, then scores by metric. Checks that no target edge is seen."""
    config = Config.from_values(values)
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    trainer = make_trainer(config, world, loaded, 0.0)
    engine, ctx, found = trainer.engine, trainer.ctx, []
    for epoch, iteration in ROUNDS:
        batch = trainer.epoch_batches(epoch)[iteration]
        minibatch = engine.plan(batch if world.rank == 0 else None, epoch, iteration)
        engine.fetch(minibatch)
        for micro_batch in minibatch.micro_batches:
            seen = block_edges(micro_batch.blocks, loaded.topology)[:, 1:]
            targets = loaded.topology.original_id[np.concatenate([batch, batch[:, ::-1]])]
            assert not {*map(tuple, seen.tolist())} & {*map(tuple, targets.tolist())}, "a target edge is seen"
        ctx.parameters.gradients.zero_()
        loss = engine.forward_backward(minibatch)
        ctx.communicator.all_reduce(ctx.parameters.shared_gradients)
        named = {name: each.copy() for name, each in ctx.parameters.by_name(ctx.parameters.gradients).items()}
        found.append((named, float(ctx.communicator.all_gather_rows(np.array([loss])).sum())))
    trainer.evaluator.scores()
    return [*found, *((each, 0.0) for each in trainer.evaluator.details.values())]


@pytest.fixture(scope="module")
def alone(world, base):
    """What one process finds, by the settings that count; shared out among the ranks."""
    every = PLAIN, PLAIN | OTHER, PLAIN | THIRD, PLAIN | TIMED
    kinds = [kind for kind in every if any(CASES[name][0] == kind for name in HERE)]
    single = start(threads=1, comm=MPI.COMM_SELF)
    data = {"data": str(base / datasets.WHOLE)}
    found = shared_out(world.comm, kinds, lambda kind: outcome(kind | data, single))
    return lambda kind: found[kinds.index(kind)]


def test_a_failure_in_work_that_is_shared_out_is_that_of_all_ranks(world):
    def fails(number: int) -> int:
        if number == 0:
            raise ValueError("this one cannot")
        return number

    with pytest.raises((ValueError, RuntimeError), match="this one cannot"):
        shared_out(world.comm, range(4), fails)
    assert shared_out(world.comm, range(4), abs) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", HERE)
def test_edges_are_trained_and_scored_as_in_one_process(name, base, alone, world):
    kind, place = CASES[name]
    rounds = outcome(kind | place | {"data": str(base / "uneven")}, world)
    for (found, loss), (wanted, loss_alone) in zip(rounds, alone(kind), strict=True):
        assert abs(loss - loss_alone) <= 1e-12
        assert found.keys() == wanted.keys()
        whole = np.linalg.norm(np.concatenate([np.ravel(each) for each in wanted.values()]))
        for key in wanted:
            assert np.linalg.norm(found[key] - wanted[key]) <= 1e-10 * whole, key
