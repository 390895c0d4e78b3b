"""Some ranks prepare and others compute: the same bits as ranks that do both, and the gradient of a single process."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from leapmpi import Config, train
from leapmpi.comm.flow_control import wait_for
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.errors import Interrupted
from leapmpi.runs.run import Run
from leapmpi.tools.forecast import plan
from leapmpi.training.one_model import OneModel
from leapmpi.training.optimizer import Optimizer
from tests.support import datasets
from tests.support.typed_models import whole_graph

COMMON = {"train.epochs": 2, "train.batch_size": 48, "model.hidden": 8, "sampling.fanout": "4,3",
          "strategy.name": "leap", "strategy.remote": "raw", "train.lr": 0.02, "run.threads": 1,
          "run.log_level": "error", "run.device": "cpu", "train.seed": 3}  # fmt: skip
PLAIN = datasets.Variant("single", "metis", 4)
EDGES = datasets.Variant("single, edges with data", "uneven", 4)
SPARSE = datasets.Variant("single, sparse features", "metis", 4)
TARGETS = datasets.Variant("targets, half-precision features", "metis", 4)
WIDE = "wide"
"""Features wide enough to be read in place."""
TYPED = "typed"
"""A typed graph; rows that learn are left out."""
OF_TYPES = {"model.name": "rgcn", "sampling.relation_fanout": "author:*=0", "model.dropout": 0.3}

# By ranks in all and ranks that prepare: what is trained. Every form of what is sent, every number ahead.
CASES = {
    (2, 1): [(WIDE, {"model.dropout": 0.5, "strategy.prefetch": "0"}), (SPARSE, {"model.name": "gcn"}),
             (TYPED, OF_TYPES)],
    (3, 1): [(PLAIN, {"model.name": "gin", "model.options.learn_scalars": True}), (TYPED, OF_TYPES)],
    (3, 2): [(WIDE, {"model.input_dropout": 0.3, "strategy.prefetch": "1"}),
             (TARGETS, {"model.residual": True, "strategy.feature_memory": "4K"}),
             (WIDE, {"strategy.remote": "sums", "model.dropout": 0.5})],
    (4, 1): [(PLAIN, {"model.name": "gcn", "sampling.sampler": "labor-0", "train.clip_norm": 0.1,
                      "strategy.feature_memory": "8K"}),
             (TYPED, OF_TYPES)],
    (4, 2): [(EDGES, {"model.name": "gat", "strategy.name": "pull", "model.jumping": "cat"}),
             (WIDE, {"model.name": "gcn", "model.residual": True}),
             (EDGES, {"strategy.remote": "sums", "model.name": "gcn", "model.input_dropout": 0.3})],
    (4, 3): [(WIDE, {"model.dropout": 0.0, "sampling.fanout": "4"}),
             (EDGES, {"model.name": "sage", "sampling.fanout": "3,2,2", "train.class_weights": "balanced"})],
}  # fmt: skip


@pytest.fixture(scope="module")
def data(world, folder):
    """A function from what a case names to its dataset's folder."""
    datasets.build(world.comm, folder, {PLAIN, EDGES, SPARSE, TARGETS, datasets.whole("single")})
    if world.rank == 0:
        graph = datasets.make_graph("single")
        narrow = graph.features
        graph.features = np.concatenate([narrow, np.sin(narrow)], axis=1)
        try:
            write_dataset(
                folder / WIDE, graph, datasets.assign(graph, "metis", 4), 4, method="metis", figures={}, seed=1
            )
        finally:
            graph.features = narrow
        typed = whole_graph(edges=200)
        parts = np.arange(typed.vertices) % 4
        write_dataset(folder / TYPED, typed, parts, 4, method="test", figures={}, seed=1)
    world.comm.barrier()
    return lambda name: str(folder / name if isinstance(name, str) else name.folder(folder))


def here(world):
    """The numbers of ranks that prepare for which there are cases."""
    return [preparing for ranks, preparing in CASES if ranks == world.size]


def colocated(config, world, ranks, folder):
    """The run on the first `ranks` ranks, each of which prepares and computes, rows in memory. Collective."""
    part = world.comm.Split(world.rank < ranks, world.rank)
    if world.rank < ranks:
        plain = {"run.folder": str(folder), "strategy.prepare_ranks": 0, "strategy.feature_memory": ""}
        train(config.replaced(plain), part)
    part.Free()
    # Asleep: while kernels are compiled, a rank that spins takes the processor from those that train.
    wait_for(world.comm.Ibarrier)
    return Run(Path(folder))


def epochs(run):
    return [record for record in run.metrics() if record["event"] == "epoch"]


def assert_same_bits(run, wanted):
    """Weights, losses and scores of two runs agree to the bit."""
    for which in ("final", "best"):
        expected = {key: array.tobytes() for key, array in wanted.weights(which).items()}
        assert {key: array.tobytes() for key, array in run.weights(which).items()} == expected, which
    for got, other in zip(epochs(run), epochs(wanted), strict=True):
        assert all(got[key] == other[key] for key in ("losses", "loss", "accuracy", "lr"))
    assert run.summary["best"] == wanted.summary["best"]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("preparing", [1, 2, 3])
def test_the_bits_are_those_of_ranks_that_do_both(preparing, number, world, folder, data):
    if number >= len(cases := CASES.get((world.size, preparing), [])):
        pytest.skip("no case for so many ranks")
    name, settings = cases[number]
    config = Config.from_values({"data": data(name), **COMMON, **settings})
    place = folder / f"bits-{preparing}-{number}"
    ranks = max(preparing, world.size - preparing)
    whole = colocated(config, world, ranks, f"{place}-colocated")
    run = train(config.replaced({"run.folder": str(place), "strategy.prepare_ranks": preparing}), world.comm)
    assert_same_bits(run, whole)
    sent, per_epoch = epochs(run)[0]["bytes"], datasets.TRAINING / config.train.batch_size
    assert sent["shares"] > 0
    assert sent["activations"] == 0
    if preparing == 2 and number in (0, 2) and world.rank == 0:
        (forecast,) = plan(config, str(world.size), f"{config.strategy.name}:prepare-ranks={preparing}", iterations=1)[
            "roles"
        ]
        for kind, expected in forecast["sent"].items():
            assert sent[kind] / per_epoch == pytest.approx(expected, rel=0.25), kind
    if preparing == 1:
        assert sent["features"] == 0, "one rank that prepares needs nobody's rows"
    if config.strategy.feature_memory:
        assert min(epochs(run)[0]["feature_memory"].values()) > 0, "rows are read in memory and in files"


def steps_of(config, comm, monkeypatch, steps=3):
    """Train on `comm`; the gradients of the first steps, as rank 0 had them."""
    seen, genuine = [], Optimizer.step

    def step(optimizer, iteration):
        seen.append(optimizer.parameters.by_name(optimizer.parameters.gradients.clone()))
        return genuine(optimizer, iteration)

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", step)
        train(config, comm)
    return seen[:steps]


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_the_gradient_is_that_of_a_single_process(model, world, folder, data, monkeypatch):
    if not here(world):
        pytest.skip("one rank has no roles")
    exact = {"train.epochs": 1, "train.dtype": "float64", "train.optimizer": "sgd", "model.name": model,
             "evaluate.every": 0, "strategy.remote": "sums"}  # fmt: skip
    config = Config.from_values({"data": data(PLAIN), **COMMON, **exact})
    alone = config.replaced(
        {"data": data(datasets.whole("single")), "run.folder": str(folder / f"alone-{model}-{world.rank}")}
    )
    wanted = steps_of(alone, MPI.COMM_SELF, monkeypatch) if world.rank == 0 else []
    # On 4 ranks each model takes some of them.
    for preparing in here(world) if world.size < 4 else {"sage": [1, 3], "gcn": [2]}[model]:
        roles = {"run.folder": str(folder / f"roles-{model}-{preparing}"), "strategy.prepare_ranks": preparing}
        got = steps_of(config.replaced(roles), world.comm, monkeypatch)
        assert (len(got) > 0) == (world.rank < world.size - preparing), "ranks that prepare take no step"
        for mine, theirs in zip(got, wanted, strict=False):
            for name, gradient in theirs.items():
                difference = np.linalg.norm(mine[name] - gradient)
                assert difference <= 1e-10 * np.linalg.norm(gradient), (name, preparing)


def test_a_run_that_was_stopped_goes_on_with_the_same_bits(world, folder, data, monkeypatch):
    if world.size not in (3, 4):
        pytest.skip("3 ranks stop one that prepares, 4 one that computes")
    preparing = 2
    base = Config.from_values({"data": data(PLAIN), **COMMON, "strategy.prepare_ranks": preparing})
    whole = train(base.replaced({"run.folder": str(folder / "roles-whole")}), world.comm)
    signalled = world.size - 1 if world.size == 3 else 0
    genuine = OneModel.step

    def step(model, engine, minibatch, number):
        if number == model.optimizer.iterations_per_epoch + 2 and world.rank == signalled:
            os.kill(os.getpid(), signal.SIGUSR2)
        return genuine(model, engine, minibatch, number)

    config = base.replaced({"run.folder": str(folder / "roles-stopped"), "run.checkpoint_every": "2"})
    with monkeypatch.context() as patch:
        patch.setattr(OneModel, "step", step)
        with pytest.raises(Interrupted, match=f"SIGUSR2 on rank {signalled}: training stopped in epoch 2"):
            train(config, world.comm)
    run = train(config, world.comm)
    assert_same_bits(run, whole)
    assert [each["bytes"] for each in epochs(run)] == [each["bytes"] for each in epochs(whole)]
