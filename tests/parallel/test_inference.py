"""Exact inference: the outputs of a dense computation in one process, on any ranks, by chunks of any size."""

import os
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
import torch

from leapmpi.config.schema import Config
from leapmpi.evaluation import scoring_by_layers
from leapmpi.evaluation.vertex_scoring import VertexScoring
from leapmpi.exchange.layer_form import reads_by_number
from leapmpi.inference import batch_outputs, layerwise
from leapmpi.inference.own_inference import inference_for
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.phase_timers import PhaseTimers
from tests.support import datasets
from tests.support.equality import here
from tests.support.launch import PROJECT
from tests.support.whole_graph import whole_outputs

CPU = torch.device("cpu")
OWN = f"{PROJECT}/tests/support/own_module.py:Net"
MODELS = {
    "gcn": {},
    "sage": {"model.hidden": 20},
    "sage, maximum": {"model.name": "sage", "model.options.aggregate": "max", "model.norm": "layer"},
    "gat": {"model.options.heads": 2, "model.residual": True},
    "gatv2": {"model.options.heads": 2, "model.jumping": "cat"},
    "gin": {"model.options.mlp_layers": 2},
    "film": {"model.jumping": "max"},
    "deepgcn": {"model.options.aggregate": "softmax", "model.options.message_norm": True},
    "own": {"model.name": OWN},
    "own, with gradients": {"model.name": OWN.replace("Net", "Enabling")},
}
OF_LENGTH = ("gat", "gatv2", "own", "own, with gradients", "GATv2Conv", "GCNConv", "PNAConv", "SAGEConv")
"""Models with functions whose last bits torch lets depend on how many rows there are, such as F.elu."""
LABELS = ("single", "single, edges with data", "single, sparse features", "targets, half-precision features")
CASES = here([(name, LABELS[number % len(LABELS)]) for number, name in enumerate(MODELS)])
if "LEAPMPI_SOAK" in os.environ:
    if find_spec("torch_geometric"):
        pyg = f"{PROJECT}/tests/support/pyg_layers.py"
        MODELS |= {name: {"model.name": f"{pyg}:{name}"} for name in ("GATv2Conv", "GCNConv", "PNAConv", "SAGEConv")}
    CASES = [(name, labels) for name in MODELS for labels in LABELS]


def variant(labels):
    return datasets.Variant(labels, "lopsided", 4)


@pytest.fixture(scope="module")
def base(world, folder):
    kinds = {labels for _, labels in CASES} | {"single"}
    datasets.build(world.comm, folder, {variant(each) for each in kinds} | {datasets.whole(each) for each in kinds})
    return folder


def loaded(world, base, name, labels, dtype, reads_all_lists=False, **settings):
    settings = {"model.name": name, "model.hidden": 8, "sampling.fanout": "3,3,3", **MODELS.get(name, {}), **settings}
    folder = str(variant(labels).folder(base))
    config = Config.from_values({"data": folder, "train.dtype": dtype, "train.seed": 3, **settings})
    dataset = open_for_training(config)
    found = load(config, dataset, world, CPU, PhaseTimers(), reads_all_lists=reads_all_lists)
    return config, found.ctx, found.topology


def on_slow_links(ctx):
    """Return `ctx` of a machine whose links make every byte that is spared worth any work."""
    return replace(ctx, machine=replace(ctx.machine, byte=1.0))


@pytest.mark.parametrize(("name", "labels"), CASES, ids=lambda each: each)
def test_outputs_are_those_of_a_dense_computation(name, labels, world, base, monkeypatch):
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        config, ctx, topology = loaded(world, base, name, labels, dtype)
        wanted = np.arange(*ctx.local_range)
        truth = whole_outputs(config, datasets.make_graph(datasets.TWIN if "sparse" in labels else labels))
        expected = truth[(topology.original_id[wanted] - 5) // 3]

        # Whole, and of own lists alone in small chunks and for some vertices: in float32 with the same bits.
        allowed = tolerance * np.abs(truth).max()
        at_once = inference_for(ctx, topology).outputs(wanted)
        _, ctx, topology = loaded(world, base, name, labels, dtype, reads_all_lists=True)
        assert isinstance(topology, TopologyShard)
        with monkeypatch.context() as patch:
            patch.setattr(layerwise, "CHUNK_BYTES", 60_000)
            reports = []
            in_chunks = inference_for(ctx, topology, report=reports.append).outputs(wanted)
        some = slice(None, None, 7 + world.rank)
        of_some = inference_for(ctx, topology).outputs(wanted[some])
        assert max(each.rounds for each in reports) > 1
        for found, where in ((at_once, slice(None)), (in_chunks, slice(None)), (of_some, some)):
            np.testing.assert_allclose(found, expected[where], rtol=0, atol=allowed)
            if dtype == "float32" and name not in OF_LENGTH:
                np.testing.assert_array_equal(found, at_once[where])


@pytest.mark.parametrize(("name", "kept"), here(list(product(["gcn", "sage", "gin"], [False, True]))))
def test_shares_and_rows_give_the_outputs_of_rows(name, kept, world, base, monkeypatch):
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        _, ctx, topology = loaded(world, base, name, "single", dtype, kept, **{"model.hidden": 20})
        own, slow, reports = np.arange(*ctx.local_range), on_slow_links(ctx), []
        rows = inference_for(ctx, topology).outputs(own)
        monkeypatch.setattr(layerwise, "CHUNK_BYTES", 1 << 30)
        at_once = inference_for(slow, topology, report=reports.append).outputs(own)
        shares = ctx.communicator.all_gather_rows(np.array([each.shares for each in reports])).sum(axis=0)
        assert shares.any() == (world.size > 1)

        # In chunks, and for some vertices.
        monkeypatch.setattr(layerwise, "CHUNK_BYTES", 100_000)
        in_chunks = inference_for(slow, topology, report=reports.append).outputs(own)
        assert max(each.rounds for each in reports) > 1
        of_some = inference_for(slow, topology).outputs(own[:: 3 + world.rank])
        allowed = tolerance * max(1, np.abs(rows).max())
        for found, expected in ((at_once, rows), (in_chunks, rows), (of_some, rows[:: 3 + world.rank])):
            np.testing.assert_allclose(found, expected, rtol=0, atol=allowed)


def test_ranks_without_wanted_vertices_serve_the_others(world, base):
    name, labels = CASES[0]
    _, ctx, topology = loaded(world, base, name, labels, "float32")
    own = np.arange(*ctx.local_range)
    every = inference_for(ctx, topology).outputs(own)
    wanted = own[-3:] if world.rank == 0 else own[:0]
    found = inference_for(ctx, topology).outputs(wanted)
    assert found.shape == (len(wanted), 5)
    np.testing.assert_allclose(found, every[len(own) - len(wanted) :], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "kept"), here([("sage", False), ("sage", True), ("gin", True)]))
def test_rows_found_by_number_give_the_bits_of_rows_that_chunks_number(name, kept, world, base, monkeypatch):
    _, ctx, topology = loaded(world, base, name, "single", "float32", kept, **{"model.hidden": 20})
    own, ways = np.arange(*ctx.local_range), []
    monkeypatch.setattr(layerwise, "CHUNK_BYTES", 60_000)
    monkeypatch.setattr(layerwise, "reads_by_number", lambda *given: ways.append(reads_by_number(*given)) or ways[-1])
    by_number = inference_for(ctx, topology).outputs(own)
    monkeypatch.setattr(layerwise, "reads_by_number", lambda *_: False)
    assert any(ways)
    np.testing.assert_array_equal(by_number, inference_for(ctx, topology).outputs(own))


@pytest.mark.parametrize("shares", [False, True])
def test_bytes_are_those_that_were_expected(shares, world, base, monkeypatch):
    for name in ("gcn", "sage"):
        _, ctx, topology = loaded(world, base, name, "single", "float32", reads_all_lists=True, **{"model.hidden": 20})
        ctx, network = on_slow_links(ctx) if shares else ctx, ctx.communicator
        for limit in (1 << 30, 100_000):
            monkeypatch.setattr(layerwise, "CHUNK_BYTES", limit)
            expected, reports = [], []
            inference = inference_for(ctx, topology, expect=expected.append, report=reports.append)
            network.byte_counters.take()
            inference.outputs(np.arange(*ctx.local_range))
            sent = network.byte_counters.take()[0]
            kinds = ("topology", "ids", "features", "activations")
            rows = [[sent.get(kind, 0) for kind in kinds], [expected[0].received.get(kind, 0) for kind in kinds]]
            counted, foretold = network.all_gather_rows(np.array(rows)).sum(axis=0).tolist()
            assert counted == foretold
            assert (sum(counted) > 0) == (world.size > 1)
            assert (counted[0] > 0) == (shares and world.size > 1 and any(each.shares for each in reports))


def test_scores_by_layers_are_those_of_batches(world, base, monkeypatch):
    monkeypatch.setattr(scoring_by_layers, "MOST_EDGES", 9)
    monkeypatch.setattr(batch_outputs, "MOST_ROOTS", 2)
    for name in ("gcn", "gat"):
        settings = {"sampling.fanout": "3,3"}
        config, ctx, topology = loaded(world, base, name, "single", "float64", **settings)
        outputs = []
        for least in (10**9, 1):
            monkeypatch.setattr(scoring_by_layers, "LEAST_BATCHES", least)
            evaluator = VertexScoring(config, open_for_training(config), topology, ctx, nullcontext)
            outcomes = evaluator.outcomes("val")
            assert (len(outcomes) == 1) == (least == 1)
            outputs.append([np.concatenate(each) for each in zip(*outcomes, strict=True)])
        for by_batches, by_layers in zip(*outputs, strict=True):
            np.testing.assert_allclose(by_layers, by_batches, rtol=0, atol=1e-12)
