"""Attention that passes from layer to layer (`beta` of simple-hgn): full batches and exact inference on any ranks."""

import os
import re
import signal
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from mpi4py import MPI

from leapmpi import train
from leapmpi.comm.world import start
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.engine.engine import Engine
from leapmpi.engine.iteration_memory import predicted_memory
from leapmpi.errors import ConfigError, Interrupted
from leapmpi.inference import layerwise
from leapmpi.inference.drawn_lists import lists_of_schema
from leapmpi.inference.layerwise import LayerwiseInference
from leapmpi.inference.row_store import StagedRows
from leapmpi.nn.attention_links import with_links
from leapmpi.nn.tensors import to_tensors
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.relation_lists import scoring_fanouts
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.counter_rng import TEST, DrawKey
from leapmpi.system.phase_timers import PhaseTimers
from tests.parallel.test_restart import epochs
from tests.support.equality import here
from tests.support.typed_models import whole_graph

CPU = torch.device("cpu")
PARTS = {"hash": lambda n: np.arange(n) % 4, "blocks": lambda n: np.arange(n) * 4 // n}
SETTINGS = {
    "model": {"name": "simple-hgn", "hidden": 8, "missing_features": "learned:6", "norm": "layer"},
    "sampling": {"fanout": "all,all,all"},
    "train": {"batch_size": "full", "lr": 0.01, "seed": 3, "dtype": "float64", "epochs": 2},
    "strategy": {"name": "depcomm"},
    "run": {"threads": 1, "log_level": "error", "device": "cpu"},
}
DROPS = {"model.dropout": 0.3, "model.input_dropout": 0.2, "model.options.attention_dropout": 0.3}
LEAVES_OUT = {"sampling.relation_fanout": ("paper:cites:*=0,all,all",)}
"""A relation that the last layer does not read."""
CASES = {
    "raw": ("hash", {"strategy.remote": "raw", "model.options.beta": 0.05, **DROPS}),
    "projected": ("hash", {"strategy.remote": "projected", "model.options.beta": 0.5, **DROPS}),
    "projected, blocks": ("blocks", {"strategy.remote": "projected", "model.options.beta": 0.05, "model.norm": "none"}),
    "raw, blocks": ("blocks", {"strategy.remote": "raw", "model.options.beta": 0.5, "model.jumping": "cat", **DROPS}),
    "relation left out": ("hash", {"model.options.beta": 0.5, **LEAVES_OUT, **DROPS}),
    "sharded": ("hash", {"model.options.beta": 0.5, "run.topology": "sharded", **DROPS}),
    "sharded, relation left out": ("blocks", {"model.options.beta": 0.5, "run.topology": "sharded", **LEAVES_OUT}),
}
EVERYWHERE = ("raw", "projected, blocks")
"""Tried on any number of ranks; others on some."""


@pytest.fixture(scope="module")
def base(folder, world):
    def write():
        graph = whole_graph()
        for name, part_of in PARTS.items():
            parts = part_of(graph.vertices)
            write_dataset(folder / name, graph, parts, 4, method="test", figures={}, seed=0)

    world.on_root(write)
    return folder


def config_of(base, name, **more):
    partition, settings = CASES[name]
    return Config.from_values(SETTINGS).replaced({"data": str(base / partition), **settings, **more})


def loaded(config, world):
    found = load(config, open_for_training(config), world, CPU, PhaseTimers())
    return found, found.ctx


def full_batch(config, world):
    """Loss, gradients of weights, and those of learned rows by original id. Collective."""
    found, ctx = loaded(config, world)
    engine, learned = Engine(ctx, config.strategy), ctx.learned
    roots = found.dataset.splits.train
    for number in range(2):
        ctx.parameters.gradients.zero_()
        minibatch = engine.plan(roots if world.rank == 0 else None, 0, number)
        engine.fetch(minibatch)
        loss = engine.forward_backward(minibatch)
    ctx.communicator.all_reduce(ctx.parameters.shared_gradients)
    own = dict(zip(learned.original[learned.touched].tolist(), learned.gradients.copy(), strict=True))
    rows = {vertex: each for part in world.comm.allgather(own) for vertex, each in part.items()}
    return sum(world.comm.allgather(loss)), ctx.parameters.by_name(ctx.parameters.gradients), rows, minibatch.key


def one_process(config):
    """The context of a process that holds the whole graph, and a function that samples whole lists of its vertices."""
    found, ctx = loaded(config.replaced({"run.topology": "node"}), start(threads=1, comm=MPI.COMM_SELF))
    layers = len(ctx.model.layers)
    read = scoring_fanouts(ctx.sampler.types, config.sampling, (ALL,) * layers).any(axis=0)
    of_relations = np.where(read, ALL, 0)[None].repeat(layers, axis=0)
    sampler = NodeWiseSampler(found.topology, (ALL,) * layers, 1, of_relations)

    def blocks(roots):
        drawn = sampler.sample(DrawKey(TEST, 0, 0, 0), roots)
        return drawn, with_links(ctx.model.layers, [to_tensors(block) for block in drawn])

    return found, ctx, blocks


def on_linked_blocks(config, key):
    """The same of one process, which samples whole lists from the roots outward."""
    found, ctx, blocks = one_process(config)
    roots = found.dataset.splits.train
    drawn, tensors = blocks(roots)
    rows = ctx.features.fetch(drawn[-1].src).to(torch.float64)
    rows = replace(rows, learned=rows.learned.detach().clone().requires_grad_())
    weight = ctx.sampler.root_weights(key, roots, len(roots))
    weight = torch.from_numpy(weight) if isinstance(weight, np.ndarray) else weight
    loss = ctx.task.loss(ctx.model(tensors, rows, key), ctx.root_labels(roots), weight)
    loss.backward()
    learns = np.isin(rows.types.numpy(), [t for t, each in enumerate(rows.features) if each is None])
    of_rows = rows.learned.grad[rows.learned_places].numpy()
    by_vertex = dict(zip(drawn[-1].src_original[learns].tolist(), of_rows[learns], strict=True))
    return float(loss.detach()), ctx.parameters.by_name(ctx.parameters.gradients), by_vertex


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_a_process_that_holds_whole_samples(name, base, world):
    if name not in (*EVERYWHERE, *here(list(CASES))):
        pytest.skip("another number of ranks takes it")
    config = config_of(base, name)
    loss, gradients, rows, key = full_batch(config, world)
    if world.rank:
        return
    wanted_loss, wanted, wanted_rows = on_linked_blocks(config, key)
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-10)
    assert gradients.keys() == wanted.keys()
    whole = np.linalg.norm([np.linalg.norm(each) for each in wanted.values()])
    for each, due in wanted.items():
        assert np.linalg.norm(gradients[each] - due) <= max(1e-10 * np.linalg.norm(due), 1e-14 * whole), each
    for vertex, due in wanted_rows.items():
        np.testing.assert_allclose(rows.get(vertex, np.zeros_like(due)), due, rtol=1e-9, atol=1e-12 * whole)
    assert rows


@pytest.mark.parametrize("name", CASES)
def test_exact_outputs_are_those_of_a_process_that_holds_whole_samples(name, base, world, folder, monkeypatch):
    if name not in (*EVERYWHERE, *here(list(CASES))):
        pytest.skip("another number of ranks takes it")
    config = config_of(base, name)
    found, ctx = loaded(config, world)
    types = ctx.sampler.types
    own = np.arange(*ctx.local_range)
    original = ctx.sampler.original_ids(own)
    _, alone, blocks = one_process(config)
    ids = np.argsort(found_ids := alone.sampler.topology.original_id)
    places = ids[np.searchsorted(found_ids[ids], original)]
    drawn, tensors = blocks(places)
    with torch.no_grad():
        truth = alone.model(tensors, alone.features.fetch(drawn[-1].src).to(torch.float64), None).numpy()
    relations = scoring_fanouts(types, config.sampling, (ALL,) * 3)
    papers = np.flatnonzero(types.of_original(original) == 0)
    reports = []
    for size, some in ((1 << 30, papers), (20_000, papers), (30_000, papers[world.rank :: 3])):
        monkeypatch.setattr(layerwise, "CHUNK_BYTES", size)
        given = {"lists_of": lists_of_schema(ctx, found.topology, relations), "report": reports.append}
        outputs = LayerwiseInference(ctx, found.topology, **given).outputs(own[some])
        np.testing.assert_allclose(outputs, truth[some], rtol=1e-11, atol=1e-13)
    assert max(each.rounds for each in reports) > 1
    # The attention of all layers is held beside their rows.
    plain, without = loaded(config.replaced({"model.options.beta": 0.0}), world)
    held = []
    given = {"lists_of": lists_of_schema(without, plain.topology, relations), "report": held.append}
    changed = LayerwiseInference(without, plain.topology, **given).outputs(own[papers])
    assert not len(papers) or not np.allclose(changed, truth[papers], rtol=1e-3, atol=0)
    assert all(mine.held_bytes > other.held_bytes for mine, other in zip(reports, held, strict=False))


def test_the_forecast_of_memory_counts_attention(base, world):
    taken = []
    for beta in (0.5, 0.0):
        config = config_of(base, "projected", **{"model.options.beta": beta})
        found, ctx = loaded(config, world)
        engine = Engine(ctx, config.strategy)
        minibatch = engine.plan(found.dataset.splits.train if world.rank == 0 else None, 0, 0)
        taken.append(predicted_memory(engine, minibatch))
        # From the last layer to the first.
        edges = [block.edges + block.n_dst for block in minibatch.graph.blocks]
    heads, size = ctx.model.layers[0].heads, 8
    assert taken[0] - taken[1] == size * heads * (sum(edges) + max(edges)) + 4 * sum(edges[:-1])


@pytest.mark.parametrize("left_after", [1, 2])
def test_staged_attention_is_read_again_after_a_kill(left_after, base, world, folder, monkeypatch):
    config = config_of(base, "relation left out")
    found, ctx = loaded(config, world)
    own = np.arange(*ctx.local_range)
    papers = own[ctx.sampler.types.of_original(ctx.sampler.original_ids(own)) == 0]
    relations = scoring_fanouts(ctx.sampler.types, config.sampling, (ALL,) * 3)
    stage = folder / f"stage-{left_after}"

    def outputs(store=None):
        given = {"lists_of": lists_of_schema(ctx, found.topology, relations), "store": store, "report": made.append}
        return LayerwiseInference(ctx, found.topology, **given).outputs(papers)

    made = []
    wanted = outputs()
    store = StagedRows(stage, world.rank, {}, False)
    with monkeypatch.context() as patch:
        genuine = LayerwiseInference._layer

        def killed(inference, work, *args):
            if work.number == left_after:
                raise KeyboardInterrupt
            genuine(inference, work, *args)

        patch.setattr(LayerwiseInference, "_layer", killed)
        with suppress(KeyboardInterrupt):
            outputs(store)
    store.release()
    made.clear()
    again = StagedRows(stage, world.rank, {}, True)
    np.testing.assert_array_equal(outputs(again), wanted)
    assert [each.number for each in made] == list(range(left_after + 1, 4))
    again.close()
    assert not [path for path in stage.iterdir() if f"rank-{world.rank}" in path.name]


def test_any_ranks_train_and_predict_as_one_process(base, world, folder):
    config = config_of(base, "raw", **{"strategy.name": "auto"})
    run = train(config.replaced({"run.folder": str(folder / "all")}), world.comm)
    assert run.config.strategy.name == "depcomm"
    run.write_predictions(base / "hash", folder / "all.npy", comm=world.comm)
    if world.rank == 0:
        alone = train(config.replaced({"run.folder": str(folder / "one")}), MPI.COMM_SELF)
        alone.write_predictions(base / "hash", folder / "one.npy", comm=MPI.COMM_SELF)
        for got, wanted in zip(epochs(run), epochs(alone), strict=True):
            np.testing.assert_allclose(got["losses"], wanted["losses"], rtol=1e-9)
            assert got["accuracy"] == wanted["accuracy"]
        np.testing.assert_allclose(*(np.load(folder / f"{which}.npy") for which in ("all", "one")), rtol=1e-9)
    world.comm.barrier()


def test_a_run_that_was_stopped_ends_with_the_same_bits(base, world, folder, monkeypatch):
    config = config_of(base, "projected", **{"train.epochs": 4})
    whole = train(config.replaced({"run.folder": str(folder / "whole")}), world.comm)
    config = config.replaced({"run.folder": str(folder / "stopped"), "run.replay": str(whole.path)})
    genuine = Engine.forward_backward

    def interrupted(engine, minibatch):
        if minibatch.key.epoch == 1 and world.rank == world.size - 1:
            os.kill(os.getpid(), signal.SIGUSR2)
        return genuine(engine, minibatch)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "forward_backward", interrupted)
        with pytest.raises(Interrupted, match="training stopped"):
            train(config, world.comm)
    run = train(config, world.comm)
    for which in ("final", "best"):
        wanted = {key: array.tobytes() for key, array in whole.weights(which).items()}
        assert {key: array.tobytes() for key, array in run.weights(which).items()} == wanted


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"strategy.remote": "partial"}, "partial cannot feed any layer of this model"),
        ({"strategy.name": "hybrid"}, "one rank must hold all edges of a vertex in each; give --strategy depcomm"),
        ({"strategy.name": "owner", "train.batch_size": 6}, "give --strategy depcomm --batch-size full"),
        ({"strategy.name": "leap", "sampling.fanout": "3,3,3"}, "give --strategy depcomm --batch-size full"),
        ({"strategy.name": "auto", "run.topology": "sharded"}, "give --strategy depcomm"),
        ({"strategy.name": "auto", "train.batch_size": 6}, "depcomm trains all .* vertices in every step"),
        ({"evaluate.fanout": "3"}, "samples differ from layer to layer; give --eval-fanout all"),
        (
            {"sampling.relation_fanout": ("paper:cites:*=3",)},
            "depcomm draws nothing; give all or 0 in --relation-fanout",
        ),
        ({"sampling.relation_fanout": ("paper:cites:*=all,0,all",)}, "leaves a relation out of the lower one alone"),
    ],
)
def test_what_does_not_keep_the_edges_of_all_layers_is_refused(changes, sentence, base, world, folder):
    with pytest.raises(ConfigError) as caught:
        train(config_of(base, "raw", **{"run.folder": str(folder / "refused"), **changes}), world.comm)
    assert re.search(sentence, str(caught.value))
