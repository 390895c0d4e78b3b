"""Tasks on edges on real ranks: gradients and scores are those of one process, bytes those that plan predicts.

No block of link prediction, or where target edges are to be left out, holds a target edge.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from mpi4py import MPI

from data_prep.assembly.edge_splits.split_edges import split_edges
from leapmpi.comm.byte_counters import KINDS
from leapmpi.comm.flow_control import wait_for
from leapmpi.comm.world import start
from leapmpi.config.schema import Config, variations
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.topology import Topology, load_topology
from leapmpi.engine.engine import Engine
from leapmpi.forecast.simulator import Forecaster
from leapmpi.sampling.edge_lookup import uses_times
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.trainer import Trainer
from leapmpi.training.training_components import components_of, prepare
from tests.support import datasets
from tests.support.draw_digest import block_edges
from tests.support.equality import here
from tests.support.shared_out import shared_out
from tests.support.typed_links import with_triples_held_back
from tests.support.typed_models import whole_graph

ROUNDS = ((0, 0), (1, 2))
PLAIN = {
    "train.task": "link", "train.dtype": "float64", "train.batch_size": 40, "train.seed": 3, "train.optimizer": "sgd",
    "model.hidden": 8, "sampling.fanout": "4,3", "model.dropout": 0.5, "link.eval_negatives": "20",
}  # fmt: skip
OTHER = {
    "link.scorer": "mlp", "link.negatives": "degree", "link.negatives_per_edge": 2, "model.name": "gcn",
    "model.norm": "batch", "sampling.sampler": "labor-0", "link.eval_negatives": "all",
}  # fmt: skip
THIRD = {
    "link.scorer": "distmult", "link.negatives": "in-batch", "link.negatives_per_edge": 3, "model.name": "gat",
    "sampling.sampler": "weighted", "sampling.fanout": "all,2",
}  # fmt: skip
TIMED = {"sampling.sampler": "temporal", "sampling.options": ["window=30"]}
CLASSES = {"train.task": "edge-class", "train.class_weights": "balanced"}
LEFT_OUT = CLASSES | {"link.target_edges": "leave-out", "link.scorer": "distmult", "model.name": "gcn"}
TYPED = PLAIN | {
    "sampling.fanout": "3,2", "train.batch_size": 9, "model.missing_features": "learned:6",
    "link.negatives_per_edge": 2, "link.eval_negatives": "all",
}  # fmt: skip
# Not distmult: an edge and its reverse have the same score, and which is ahead depends on rounding.
RELATIONS = TYPED | {"model.name": "rgcn", "link.scorer": "transe"}
GRAPHS_OF_KNOWLEDGE = TYPED | {
    "model.name": "embedding", "model.missing_features": "learned:8", "sampling.fanout": "1", "model.dropout": 0.0,
    "sampling.relation_fanout": ["*=0"], "link.scorer": "rotate", "train.loss": "self-adversarial",
    "link.negatives": "degree",
}  # fmt: skip
KNOWN_BY_ALL = GRAPHS_OF_KNOWLEDGE | {
    "link.scorer": "complex-reciprocal", "train.loss": "cross-entropy", "link.negatives": "all"
}  # fmt: skip
ATTENTION = TYPED | {
    "model.name": "hgt", "link.scorer": "complex", "train.loss": "cross-entropy", "link.negatives": "shared",
    "link.eval_negatives": "4",
}  # fmt: skip
HARD = {"link.negatives": "hard:false.txt", "link.negatives_per_edge": 3}
SHARDED = {"run.topology": "sharded"}
RING = {"strategy.time_steps": "N"}
CASES = {
    "leap": (PLAIN, {"strategy.remote": "raw"}),
    "ring": (PLAIN, {"strategy.remote": "projected"} | RING),
    "pull": (PLAIN, {"strategy.name": "pull", "strategy.remote": "partial"}),
    "p3": (PLAIN, {"strategy.name": "p3"}),
    "naive": (PLAIN, {"strategy.name": "naive"}),
    "partial": (PLAIN | OTHER, {"strategy.remote": "partial"}),
    "pulled mlp": (PLAIN | OTHER, {"strategy.name": "pull", "strategy.remote": "raw"}),
    "third": (PLAIN | THIRD, {"strategy.remote": "projected"} | RING),
    "temporal": (PLAIN | TIMED, {"strategy.remote": "partial"} | RING),
    "classes": (PLAIN | CLASSES, {"strategy.remote": "raw"}),
    "classes, labels held back": (PLAIN | LEFT_OUT, {"strategy.remote": "partial"} | RING),
    "pulled classes": (PLAIN | CLASSES, {"strategy.name": "pull", "strategy.remote": "projected"}),
    "naive classes": (PLAIN | CLASSES, {"strategy.name": "naive"}),
    "typed": (RELATIONS, {"strategy.remote": "partial"}),
    "typed, pulled": (RELATIONS, {"strategy.name": "pull", "strategy.remote": "raw"}),
    "typed, knowledge": (GRAPHS_OF_KNOWLEDGE, {"strategy.remote": "raw"} | RING),
    "typed, all": (KNOWN_BY_ALL, {"strategy.remote": "raw", "strategy.feature_memory": "4K"} | RING),
    "hard": (PLAIN | HARD, {"strategy.remote": "partial"}),
    "typed, hard": (RELATIONS | HARD, {"strategy.remote": "projected"} | RING),
    "typed, attention": (ATTENTION, {"strategy.remote": "projected"}),
    "leap, sharded": (PLAIN, {"strategy.remote": "raw", **SHARDED}),
    "pulled mlp, sharded": (PLAIN | OTHER, {"strategy.name": "pull", "strategy.remote": "partial", **SHARDED}),
    "third, sharded": (PLAIN | THIRD, {"strategy.remote": "projected", **RING, **SHARDED}),
    "temporal, sharded": (PLAIN | TIMED, {"strategy.remote": "raw", **SHARDED}),
    "classes, labels held back, sharded": (PLAIN | LEFT_OUT, {"strategy.remote": "partial", **RING, **SHARDED}),
}
LABELS_HELD = {"classes, labels held back", "classes, labels held back, sharded"}
"""Cases whose data hold back labels alone."""
HERE = here(list(CASES))


@pytest.fixture(scope="module")
def base(world, folder):
    if world.rank == 0:
        graph = datasets.make_graph("single, edges with data")
        rng = np.random.default_rng(6)
        times, labels = rng.integers(0, 50, graph.edges), rng.integers(-1, 4, graph.edges).astype(np.int32)
        carried = replace(graph.edge_data, time=times, labels=labels, classes=4)
        graph = replace(graph, attributes={"directed": True}, edge_data=carried)
        for held in (names.HELD_EDGES, names.HELD_LABELS):
            (folder / held).mkdir()
            split = split_edges(graph, (0.8, 0.1, 0.1), 5, held=held)
            for partition, parts in (("uneven", 4), (datasets.WHOLE, 1)):
                cut = np.zeros(graph.vertices, np.int32) if parts == 1 else datasets.assign(graph, partition, parts)
                write_dataset(folder / held / partition, split, cut, parts, method=partition, figures={}, seed=1)
        typed = with_triples_held_back(whole_graph())
        (folder / "typed").mkdir()
        for partition, parts in (("uneven", 4), (datasets.WHOLE, 1)):
            cut = np.arange(typed.vertices) * 7 % parts
            write_dataset(folder / "typed" / partition, typed, cut, parts, method=partition, figures={}, seed=1)
        ids, types = typed.original_id, typed.types
        of_type = [ids[types.of_original(ids) == kind] for kind in range(len(types.vertices))]
        lines = [
            f"{rng.choice(of_type[source])}\t{relation}\t{rng.choice(of_type[destination])}"
            for relation, (source, destination) in zip(types.relations, types.ends.tolist(), strict=True)
            for _ in range(60)
        ]
        (folder / "typed" / "false.txt").write_text("\n".join(lines))
        pairs = graph.original_id[rng.integers(0, graph.vertices, (300, 2))]
        (folder / names.HELD_EDGES / "false.txt").write_text("\n".join(f"{u},{v}" for u, v in pairs))
    wait_for(world.comm.Ibarrier)
    return folder


def data_of(name: str, base, partition: str) -> dict[str, str]:
    """The dataset of a case."""
    held = names.HELD_LABELS if name in LABELS_HELD else names.HELD_EDGES
    folder = base / ("typed" if name.startswith("typed") else held)
    false = {"link.negatives": f"hard:{folder / 'false.txt'}"} if name.endswith("hard") else {}
    return {"data": str(folder / partition), **false}


def outcome(values: dict, world) -> list[tuple[dict, float]]:
    """Gradients and loss of each round over all ranks, then scores by metric.

    Checks that no target edge is seen, and what is sent.
    """
    config = Config.from_values(values)
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    trainer = components_of(config, world, loaded)
    engine, ctx, found = trainer.engine, trainer.ctx, []
    whole = load_topology(
        loaded.dataset,
        loaded.dataset.has_edge_weight,
        times=uses_times(config, loaded.dataset),
        labels=ctx.task.reads_edge_labels,
    )
    for epoch, iteration in ROUNDS:
        batches = trainer.planned_batches(epoch)
        if not found:
            # Once, ranks tell each other in which order vertices are drawn.
            engine.plan(batches[iteration] if batches else None, epoch, iteration)
        ctx.communicator.byte_counters.take()
        minibatch = engine.plan(batches[iteration] if batches else None, epoch, iteration)
        batch = minibatch.edge_loss.plan.edges
        engine.fetch(minibatch)
        # Typed edges are left out by relation, and others between the same ends are seen.
        for micro_batch in minibatch.micro_batches if ctx.task.leaves_out() and whole.types is None else ():
            seen = block_edges(micro_batch.blocks, whole)[:, 1:]
            targets = whole.original_id[np.concatenate([batch, batch[:, ::-1]])]
            assert not {*map(tuple, seen.tolist())} & {*map(tuple, targets.tolist())}, "a target edge is seen"
        ctx.parameters.gradients.zero_()
        loss = engine.forward_backward(minibatch)
        ctx.communicator.all_reduce(ctx.parameters.shared_gradients)
        sent, _ = ctx.communicator.byte_counters.take()
        if not found:
            share = batches[iteration] if batches else None
            check_sent(sent, config, trainer, minibatch.key, batch, share, whole)
        named = {name: each.copy() for name, each in ctx.parameters.by_name(ctx.parameters.gradients).items()}
        found.append((named, float(ctx.communicator.all_gather_rows(np.array([loss])).sum())))
    scores = trainer.evaluator.scores()
    if not trainer.evaluator.details:
        return [*found, (scores, 0.0)]
    return [*found, *((each, 0.0) for each in trainer.evaluator.details.values())]


def check_sent(sent: dict[str, int], config: Config, trainer, key, batch: np.ndarray, share, whole: Topology) -> None:
    """Bytes of an iteration are those that `leapmpi plan` counts, had it the same draws."""
    engine, world = trainer.engine, trainer.world

    def as_trained(each: Engine) -> None:
        each.placement.time_steps = engine.placement.time_steps
        each.use_mode(engine.mode_name)

    job = Forecaster(trainer.loaded.dataset, whole).job(config, world.size)
    for each in job.engines:
        as_trained(each)
    shares = job.on_first(batch)
    if trainer.ctx.sampler.sharded:
        # Each rank's edges of the batch, as it has them in training; the first plan is counted in none.
        shares = world.comm.allgather(share)
        job.plan(shares, key)
        job.world.take()
    planned = job.plan(shares, key)
    traffic = job.count(job.draw_planned(planned, key))
    for kind in (each for each in KINDS if each not in ("control", "parameters")):
        assert sent[kind] == traffic.sent[kind][world.rank].sum(), kind


@pytest.fixture(scope="module")
def alone(world, base):
    """What one process finds, by the settings that count; shared out among the ranks."""
    kinds = list({str(CASES[name][0]): name for name in HERE}.values())
    single = start(threads=1, comm=MPI.COMM_SELF)
    found = shared_out(
        world.comm, kinds, lambda name: outcome(CASES[name][0] | data_of(name, base, datasets.WHOLE), single)
    )
    return {str(CASES[name][0]): each for name, each in zip(kinds, found, strict=True)}


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
    rounds = outcome(kind | place | data_of(name, base, "uneven"), world)
    for (found, loss), (wanted, loss_alone) in zip(rounds, alone[str(kind)], strict=True):
        assert abs(loss - loss_alone) <= 1e-12
        assert found.keys() == wanted.keys()
        whole = np.linalg.norm(np.concatenate([np.ravel(each) for each in wanted.values()]))
        for key in wanted:
            assert np.linalg.norm(found[key] - wanted[key]) <= 1e-10 * whole, key


@pytest.mark.parametrize("task", here(["link", "edge-class"]))
def test_models_that_differ_are_trained_as_each_would_be_alone(task, base, world):
    plain = PLAIN | {"train.task": task, "train.batch_size": 700, "train.optimizer": "adam", "train.epochs": 1}
    plain |= data_of("leap", base, "uneven") | {"strategy.name": ("leap", "pull")[world.size % 2], "run.threads": 1}
    varied = ["model.hidden=8,6", f"link.scorer={'dot,mlp' if task == 'link' else 'mlp,distmult'}"]
    config = Config.from_values(plain | {"strategy.vary": varied})

    def trained(config: Config, world):
        loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
        components = components_of(config, world, loaded)
        trainer = Trainer(components, prepare(components), 0.0)
        trainer.epoch(0)
        return trainer

    def outcome_of(config: Config):
        trainer = trained(config.replaced(data_of("leap", base, datasets.WHOLE)), start(threads=1, comm=MPI.COMM_SELF))
        return trainer.ctx.parameters.by_name(), trainer.epochs[0]["loss"], trainer.epochs[0]["accuracy"]

    together = trained(config, world)
    alone = shared_out(world.comm, list(variations(config).values()), outcome_of)
    for replica, (weights, loss, scores) in zip(together.models.replicas, alone, strict=True):
        assert replica.epochs[0]["loss"] == pytest.approx(loss, abs=1e-10)
        assert replica.epochs[0]["accuracy"] == pytest.approx(scores, abs=1e-9)
        for name, values in replica.layout.by_name().items():
            assert np.abs(values - weights[name]).max() < 1e-8, name
