"""Typed graphs: gradients of weights and of learned rows are those of a single process, whatever crosses ranks.

With LEAPMPI_SOAK set, for all that goes together (tests/soak/test_parallel_cases.py).
"""

import json
import os
from dataclasses import replace
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
import torch
from mpi4py import MPI

import leapmpi
from leapmpi import train
from leapmpi.comm.world import start
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.hdf5.names import REPLICATED_TYPES
from leapmpi.engine.ahead.interleaved_prefetcher import InterleavedPrefetcher
from leapmpi.engine.calibration import compute_rates
from leapmpi.engine.engine import Engine
from leapmpi.errors import ConfigError
from leapmpi.exchange.layer_graphs import RAW
from leapmpi.features.learned_rows import ROWS
from leapmpi.inference import batch_outputs, layerwise
from leapmpi.inference.batch_outputs import bounded_outputs
from leapmpi.inference.own_inference import inference_for
from leapmpi.nn.tensors import to_tensors
from leapmpi.plan.homes import in_range
from leapmpi.session.setup import load, open_for_training
from leapmpi.session.warm_up import warm_up
from leapmpi.system.counter_rng import TEST, DrawKey
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.feature_cache import FeatureCache
from leapmpi.training.optimizer import Optimizer
from tests.support.equality import here
from tests.support.launch import PROJECT
from tests.support.prefetching import prepared_at_once
from tests.support.traffic import expected_traffic
from tests.support.typed_models import whole_graph

PARTS = {"in turn": lambda n: np.arange(n) % 4, "in blocks": lambda n: np.arange(n) * 4 // n}
SETTINGS = {
    "model": {"hidden": 8, "missing_features": "learned:6", "dropout": 0.3, "input_dropout": 0.2},
    "sampling": {"fanout": "3,2"},
    "train": {"batch_size": 6, "lr": 0.01, "seed": 3, "dtype": "float64", "weight_decay": 0.01},
    "run": {"threads": 1, "log_level": "error", "device": "cpu"},
}
MODELS = {
    "rgcn": {"model.name": "rgcn"},
    "rgcn bases": {"model.name": "rgcn", "model.options.bases": 2, "model.norm": "layer"},
    "rsage": {"model.name": "rsage", "model.options.relations": "mean"},
    "rgcn blocks": {"model.name": "rgcn", "model.options.blocks": 2, "model.jumping": "cat"},
    "rgat": {"model.name": "rgat", "model.options.attention_dropout": 0.3, "model.norm": "layer"},
    "rgat across": {
        "model.name": "rgat",
        "model.options.softmax": "across",
        "model.options.attention_dropout": 0.2,
        "model.residual": True,
    },
    "hgt": {"model.name": "hgt", "model.norm": "layer"},
    "simple-hgn": {"model.name": "simple-hgn", "model.options.attention_dropout": 0.3, "model.norm": "layer"},
}
OWN = {"own": {"model.name": f"{PROJECT}/tests/support/own_typed_module.py:Net"}}
for name in ("Hetero", "copied", "Transformer") if find_spec("torch_geometric") else ():
    OWN[name] = {"model.name": f"{PROJECT}/tests/support/pyg_typed.py:{name}"}
REMOTE = {name: {"strategy.remote": name} for name in ("raw", "projected", "partial", "mixed")}
MINI_BATCHES = {
    "leap": {"strategy.name": "leap", "strategy.time_steps": "1"},
    "ring": {"strategy.name": "leap", "strategy.time_steps": "N"},
    "pull": {"strategy.name": "pull"},
    "owner": {"strategy.name": "owner"},
}
WHOLE = {"sampling.fanout": "all,all", "train.batch_size": 1000}
FULL_BATCHES = {name: {"strategy.name": name, **WHOLE} for name in ("depcomm", "hybrid")}
STRATEGIES = MINI_BATCHES | FULL_BATCHES
SHARDED = {"run.topology": "sharded"}
BOUNDS = {"sampling.sampler": "temporal", "sampling.options.bound": "root"}
"""Each root sees what is earlier than itself; on the graph with times."""
KEPT = {"model.dropout": 0.0, "model.input_dropout": 0.0}
"""Without dropout ranks compute own shares while those for others travel."""
FEW = {
    2: [
        ("rgcn", "in turn", "raw", "leap", {}),
        ("rgcn bases", "in blocks", "partial", "ring", {}),
        ("rgcn", "in turn", "auto", "owner", KEPT),
        ("rsage", "in turn", "mixed", "depcomm", {}),
        ("rgcn blocks", "in turn", "projected", "owner", {}),
        ("rgcn", "timed in turn", "partial", "leap", BOUNDS),
        ("rsage", "timed in blocks", "projected", "pull", BOUNDS),
        ("rgat", "in turn", "projected", "leap", {}),
        ("rgat", "in turn", "partial", "leap", {}),
        ("rgat", "in blocks", "partial", "pull", SHARDED),
        ("rgat", "in turn", "partial", "ring", KEPT),
        ("rgat across", "in blocks", "raw", "owner", {}),
        ("rgat", "in turn", "auto", "hybrid", {}),
        ("hgt", "in turn", "projected", "ring", {}),
        ("rgat across", "in turn", "partial", "leap", {}),
        ("simple-hgn", "in blocks", "partial", "ring", {}),
        ("hgt", "in blocks", "auto", "owner", KEPT),
        ("simple-hgn", "in turn", "projected", "leap", {}),
        ("simple-hgn", "in turn", "auto", "hybrid", KEPT),
        ("own", "in turn", "raw", "ring", {}),
        ("rgcn", "held in turn", "projected", "owner", {}),
        ("rsage", "held in blocks", "raw", "leap", {}),
    ],
    3: [
        ("rsage", "in blocks", "partial", "leap", KEPT),
        ("rgcn bases", "in turn", "projected", "pull", {}),
        ("rgcn", "in turn", "auto", "hybrid", {}),
        ("rsage", "in turn", "raw", "ring", {}),
        ("rgcn bases", "timed in turn", "raw", "pull", BOUNDS),
        ("rgcn", "timed in blocks", "partial", "ring", BOUNDS),
        ("rgat", "in turn", "auto", "owner", {}),
        ("rgat", "timed in blocks", "partial", "pull", BOUNDS),
        ("rgat", "in turn", "partial", "leap", SHARDED),
        ("rgat across", "timed in turn", "projected", "leap", BOUNDS),
        ("rgat", "in blocks", "raw", "depcomm", KEPT),
        ("hgt", "in blocks", "raw", "pull", {}),
        ("hgt", "in turn", "auto", "hybrid", {}),
        ("simple-hgn", "in turn", "auto", "owner", {}),
        ("hgt", "in turn", "partial", "leap", {}),
        ("rgat across", "timed in blocks", "partial", "pull", BOUNDS),
        ("simple-hgn", "in turn", "partial", "pull", SHARDED),
        ("simple-hgn", "timed in turn", "raw", "pull", BOUNDS),
        ("own", "in blocks", "auto", "leap", {}),
        ("rgcn", "held in turn", "raw", "owner", {}),
    ],
    4: [
        ("rgcn bases", "in turn", "mixed", "leap", {}),
        ("rgcn blocks", "in blocks", "partial", "depcomm", {}),
        ("rsage", "in turn", "partial", "owner", KEPT),
        ("rgcn", "in turn", "projected", "ring", {}),
        ("rsage", "timed in turn", "partial", "pull", BOUNDS),
        ("rgcn blocks", "timed in turn", "projected", "leap", BOUNDS),
        ("rgat", "in turn", "projected", "ring", {}),
        ("rgat", "in turn", "partial", "pull", {}),
        ("rgat", "in blocks", "partial", "leap", SHARDED),
        ("rgat", "timed in turn", "partial", "ring", BOUNDS),
        ("rgat across", "in turn", "auto", "hybrid", KEPT),
        ("rgat across", "in blocks", "projected", "pull", SHARDED),
        ("hgt", "in turn", "projected", "leap", SHARDED),
        ("hgt", "in turn", "raw", "depcomm", KEPT),
        ("hgt", "in blocks", "partial", "ring", KEPT),
        ("rgat across", "in turn", "partial", "leap", SHARDED),
        ("simple-hgn", "in turn", "partial", "leap", {}),
        ("simple-hgn", "in blocks", "projected", "ring", {}),
        ("simple-hgn", "in turn", "raw", "depcomm", {}),
        ("own", "in turn", "raw", "pull", SHARDED),
        ("rgcn bases", "held in turn", "partial", "owner", {}),
        ("rgcn", "held in blocks", "projected", "owner", SHARDED),
    ],
}
"""By number of ranks."""

SOAKS = "LEAPMPI_SOAK" in os.environ
"""Whether all that goes together is tried."""

FORMS = {
    **dict.fromkeys(("rgat", "rgat across", "hgt", "simple-hgn"), ("raw", "projected", "partial")),
}
"""Of models that not all serve."""
PRODUCT = [(*each, {}) for each in product(MODELS, PARTS, REMOTE, STRATEGIES) if each[3] != "hybrid"]
PRODUCT += [
    (*each, BOUNDS)
    for each in product(MODELS, [f"timed {name}" for name in PARTS], ("raw", "projected", "partial"), MINI_BATCHES)
    if each[3] != "owner"
]
PRODUCT += [
    (*each, {})
    for each in product(("rgcn",), [f"held {name}" for name in PARTS], REMOTE, STRATEGIES)
    if each[3] != "hybrid"
]
PRODUCT = [each for each in PRODUCT if each[2] in FORMS.get(each[0], REMOTE)]
# Fixed routes have no shares of attention.
PRODUCT = [
    each for each in PRODUCT if not (each[0] in FORMS and each[2:4] in (("partial", "owner"), ("partial", "depcomm")))
]
PRODUCT += [(*each, {}) for each in product(OWN, PARTS, ("raw",), ("leap", "ring", "pull"))]


@pytest.fixture(scope="module")
def base(folder, world):
    """The same graph cut in two ways, with and without times."""

    def write():
        graph = whole_graph()
        random = np.random.default_rng(0)
        times = random.integers(0, 20, len(graph.indices))
        timed = replace(
            graph,
            edge_data=replace(graph.edge_data, time=times),
            time=random.integers(5, 20, graph.vertices),
        )
        for name, part_of in PARTS.items():
            parts = part_of(graph.vertices)
            for made, where in ((graph, name), (timed, f"timed {name}")):
                write_dataset(folder / where, made, parts, 4, method="test", figures={}, seed=0)
            figures = {REPLICATED_TYPES: json.dumps(["author", "field", "venue"])}
            write_dataset(folder / f"held {name}", graph, parts, 4, method="test", figures=figures, seed=0)

    world.on_root(write)
    return folder


def trained(config, world):
    """Loss, gradients, and the learned rows with their gradients by original id, of each iteration. Collective."""
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    ctx, learned = loaded.ctx, loaded.ctx.learned
    engine, communicator = Engine(ctx, config.strategy), ctx.communicator
    FeatureCache(config, world, loaded, engine).choose()
    optimizer = Optimizer(config.train, ctx.parameters, 1, learned, communicator)
    found = []
    batches = ctx.sampler.batches(loaded.dataset.splits.train, 3, 0, config.train.batch_size)
    for number in range(2):
        batch = batches[number % len(batches)]
        minibatch = engine.plan(batch if world.rank == 0 else None, 0, number)
        engine.fetch(minibatch)
        ctx.parameters.gradients.zero_()
        loss = engine.forward_backward(minibatch)
        communicator.all_reduce(ctx.parameters.shared_gradients)
        own = dict(zip(learned.original[learned.touched].tolist(), learned.gradients.copy(), strict=True))
        by_vertex = {vertex: each for part in world.comm.allgather(own) for vertex, each in part.items()}
        gradients = ctx.parameters.by_name(ctx.parameters.gradients)
        optimizer.step(number)
        rows = learned.gathered(communicator).get(ROWS)
        found.append((sum(world.comm.allgather(loss)), gradients, by_vertex, rows))
    return found


@pytest.mark.parametrize("model", ["rgat", "rgat across", "rgcn"])
def test_shares_send_the_bytes_that_are_counted_by_hand(model, base, world):
    values = {"data": str(base / "in turn"), **MODELS[model], **REMOTE["partial"], **STRATEGIES["leap"]}
    config = Config.from_values(SETTINGS).replaced(values)
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    ctx, engine = loaded.ctx, Engine(loaded.ctx, config.strategy)
    FeatureCache(config, world, loaded, engine).choose()
    batch = ctx.sampler.batches(loaded.dataset.splits.train, 3, 0, 20)[0]
    minibatch = engine.plan(batch if world.rank == 0 else None, 0, 0)
    wanted = expected_traffic(minibatch, loaded, engine)
    ctx.communicator.byte_counters.take()
    engine.fetch(minibatch)
    engine.forward_backward(minibatch)
    counted_bytes, rows = ctx.communicator.byte_counters.take()
    found = counted_bytes | rows
    for kind in ("ids", "activations", "remote", "local"):
        assert found[kind] == wanted[kind], kind


def test_the_time_of_typed_blocks_is_measured(base, world):
    config = Config.from_values(SETTINGS).replaced({"data": str(base / "in turn"), **MODELS["rgcn"]})
    ctx = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers()).ctx
    assert min(compute_rates(ctx, np.arange(*ctx.local_range)[:4])) >= 0


@pytest.mark.parametrize(("hidden", "as_stored"), [(1, False), (64, True)])
def test_owner_counts_the_bytes_of_stored_rows_by_type(hidden, as_stored, base, world):
    settings = {"data": str(base / "in turn"), **MODELS["rgcn"], **MINI_BATCHES["owner"], "model.hidden": hidden}
    config = Config.from_values(SETTINGS).replaced({**settings, "model.missing_features": "learned:8"})
    ctx = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers()).ctx
    minibatch = Engine(ctx, config.strategy).plan(np.arange(12) if world.rank == 0 else None, 0, 0)
    assert world.size == 1 or (minibatch.graph.plans[0].kind == RAW) == as_stored


@pytest.mark.parametrize("case", PRODUCT if SOAKS else FEW.get(MPI.COMM_WORLD.size, []), ids=str)
def test_gradients_are_those_of_a_single_process(case, base, world):
    model, partition, remote, strategy, more = case
    settings = {
        "data": str(base / partition),
        **(MODELS | OWN)[model],
        **REMOTE.get(remote, {}),
        **STRATEGIES[strategy],
        **more,
    }
    config = Config.from_values(SETTINGS).replaced(settings)
    plain = {"strategy.name": "leap", "strategy.time_steps": "1", "strategy.remote": "raw", "run.topology": "node"}
    alone = config.replaced(plain)
    wanted = trained(alone, start(threads=1, comm=MPI.COMM_SELF)) if world.rank == 0 else []
    found = trained(config, world)
    if world.rank:
        return
    for (loss, gradients, rows, values), (loss_alone, gradients_alone, rows_alone, values_alone) in zip(
        found, wanted, strict=True
    ):
        np.testing.assert_allclose(loss, loss_alone, rtol=1e-10)
        assert gradients.keys() == gradients_alone.keys()
        whole = np.linalg.norm([np.linalg.norm(each) for each in gradients_alone.values()])
        for name, wanted_gradient in gradients_alone.items():
            norm = np.linalg.norm(wanted_gradient)
            assert np.linalg.norm(gradients[name] - wanted_gradient) <= max(1e-10 * norm, 1e-14 * whole), name
        # The same rows are moved, by the same gradients.
        assert rows.keys() == rows_alone.keys()
        vertices = sorted(rows)
        got, due = (np.stack([each[vertex] for vertex in vertices]) for each in (rows, rows_alone))
        assert np.linalg.norm(got - due) <= 1e-10 * np.linalg.norm(due) > 0
        np.testing.assert_allclose(values, values_alone, atol=1e-9)


@pytest.mark.parametrize("remote", ["raw", "partial"])
def test_outputs_bounded_by_roots_are_those_of_a_single_process(remote, base, world, monkeypatch):
    monkeypatch.setattr(batch_outputs, "MOST_ROOTS", 5)
    settings = {"data": str(base / "timed in turn"), **MODELS["rsage"], **REMOTE[remote], **BOUNDS}
    config = Config.from_values(SETTINGS).replaced(settings)

    def outputs(among):
        loaded = load(config, open_for_training(config), among, torch.device("cpu"), PhaseTimers())
        roots = in_range(loaded.dataset.splits.train, *loaded.ctx.local_range)
        found = zip(roots.tolist(), bounded_outputs(config, loaded.ctx, roots), strict=True)
        return {root: row for part in among.comm.allgather(dict(found)) for root, row in part.items()}

    found = outputs(world)
    if world.rank == 0:
        alone = outputs(start(threads=1, comm=MPI.COMM_SELF))
        assert found.keys() == alone.keys()
        for root, row in alone.items():
            np.testing.assert_allclose(found[root], row, rtol=1e-10)


def test_a_module_of_ones_own_is_warmed_up_on_rows_of_the_types_that_it_reads(base, world):
    config = Config.from_values(SETTINGS).replaced({"data": str(base / "in turn"), **OWN["own"]})
    ctx = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers()).ctx
    warm_up(world, ctx, config)
    assert not any(each.any() for each in ctx.parameters.gradients)


@pytest.mark.parametrize("name", here(sorted(OWN)))
def test_a_module_of_ones_own_run_layer_by_layer_gives_what_it_gives_on_samples(name, base, world, monkeypatch):
    values = {"data": str(base / "in turn"), "sampling.fanout": "all,all", **OWN[name]}
    config = Config.from_values(SETTINGS).replaced(values)
    data, cpu = open_for_training(config), torch.device("cpu")
    alone = load(config, data, start(threads=1, comm=MPI.COMM_SELF), cpu, PhaseTimers()).ctx
    ctx, topology = (found := load(config, data, world, cpu, PhaseTimers())).ctx, found.topology
    first, end = ctx.local_range
    own = np.arange(first, end)
    papers = own[data.types.of_original(topology.original_id[first:end]) == 0]
    with torch.no_grad():
        blocks = alone.sampler.sample(DrawKey(TEST, 0, 0, 0), papers)
        wanted = alone.model([to_tensors(each) for each in blocks], alone.features.local(blocks[-1].src))
    for size, some in ((1 << 30, slice(None)), (20_000, slice(world.rank, None, 3))):
        monkeypatch.setattr(layerwise, "CHUNK_BYTES", size)
        outputs = inference_for(ctx, topology).outputs(papers[some])
        np.testing.assert_allclose(outputs, wanted.numpy()[some], rtol=1e-10, atol=1e-12)
    of_other = own[data.types.of_original(topology.original_id[first:end]) == 1]
    with pytest.raises(ConfigError, match="the module gives rows of paper alone; leave out --type"):
        inference_for(ctx, topology).outputs(of_other)
    with pytest.raises(ConfigError, match="split among their relations; give another --what than embeddings"):
        inference_for(ctx, topology).outputs(papers, 1)


@pytest.mark.parametrize("remote", ["raw", "projected"])
def test_rows_of_types_that_every_rank_holds_never_travel(remote, base, world):
    sent = {}
    for name in ("in turn", "held in turn"):
        values = {**MODELS["rgcn"], **REMOTE[remote], **STRATEGIES["owner"], "data": str(base / name)}
        config = Config.from_values(SETTINGS).replaced(values)
        loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
        ctx, engine = loaded.ctx, Engine(loaded.ctx, config.strategy)
        FeatureCache(config, world, loaded, engine).choose()
        ctx.communicator.byte_counters.take()
        minibatch = engine.plan(np.arange(20) if world.rank == 0 else None, 0, 0)
        engine.fetch(minibatch)
        by_kind = minibatch.graph.plans[0].by_kind
        received = 0 if by_kind is None else int(by_kind.received_counts.sum())
        sent[name] = world.comm.allreduce(received + ctx.features.missing(minibatch.graph.fed))
    assert world.size == 1 or 0 < sent["held in turn"] < sent["in turn"]


def test_models_that_differ_are_what_their_own_runs_make_of_them(base, world, folder):
    featured = {"sampling.relation_fanout": "author:*=0", "train.epochs": 2, "strategy.name": "leap"}
    values = {"data": str(base / "in turn"), "model.name": "rgcn", **featured}
    config = Config.from_values(SETTINGS).replaced(values)
    together = config.replaced({"strategy.vary": ("model.hidden=4,8",), "run.folder": str(folder / "together")})
    run = leapmpi.train(together, world.comm)
    if world.rank:
        return
    for number, hidden in enumerate((4, 8)):
        own = config.replaced({"model.hidden": hidden, "run.folder": str(folder / f"hidden-{hidden}")})
        wanted = leapmpi.train(own, MPI.COMM_SELF).weights("final")
        found = leapmpi.load_run(f"{run.path}/model-{number:02}").weights("final")
        assert found.keys() == wanted.keys()
        for name, each in wanted.items():
            np.testing.assert_allclose(found[name], each, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("remote", ["raw", "projected"])
def test_rows_are_those_that_steps_have_moved_however_far_ahead_one_prepares(remote, base, world, folder, monkeypatch):
    values = {"data": str(base / "in turn"), "train.epochs": 3, **MODELS["rgcn"], **MINI_BATCHES["owner"]}
    config, found = Config.from_values(SETTINGS).replaced({**values, **REMOTE[remote]}), set()
    monkeypatch.setattr(InterleavedPrefetcher, "_allow", prepared_at_once)
    for depth in ("0", "1", "2"):
        where = {"run.folder": str(folder / f"ahead-{remote}-{depth}"), "strategy.prefetch": depth}
        run = train(config.replaced(where), world.comm)
        losses = tuple(epoch["loss"] for epoch in run.summary["epochs"])
        sent = tuple(tuple(sorted(epoch["bytes"].items())) for epoch in run.summary["epochs"])
        found.add((run.summary["parameters_digest"], losses, sent))
        assert run.summary["epochs"][0]["prefetch"] == int(depth)
    assert len(found) == 1
