"""What inference says that it takes: rows that are held, and a chunk, against what is allocated."""

import numpy as np
import pytest
import torch
from mpi4py import MPI

from leapmpi.comm.world import finish, start
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType
from leapmpi.errors import ResourceError
from leapmpi.exchange import layer_form
from leapmpi.inference import layerwise
from leapmpi.inference.layerwise import LayerwiseInference
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.phase_timers import PhaseTimers
from tests.support.allocations import Allocations
from tests.support.typed_graphs import typed_graph

VERTICES, DEGREE, CHUNK = 3000, 12, 2_000_000
PER_VERTEX = 44
"""Bytes for each vertex of the graph: what the sampler and the cutting of chunks look up."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    random = np.random.default_rng(0)
    lists = [np.sort(random.choice(VERTICES - 1, DEGREE, replace=False)) for _ in range(VERTICES)]
    indices = np.concatenate([row + (row >= v) for v, row in enumerate(lists)]).astype(np.int32)
    features = random.standard_normal((VERTICES, 48)).astype(np.float32)
    train = np.ones(VERTICES, np.int8)
    graph = Graph(np.arange(VERTICES + 1) * DEGREE, indices, features, np.zeros(VERTICES, np.int64), train, classes=4)
    folder = tmp_path_factory.mktemp("memory") / "data"
    write_dataset(folder, graph, np.zeros(VERTICES, np.int32), 1, method="test", figures={}, seed=0)
    return folder


@pytest.fixture(scope="module")
def world():
    found = start(threads=1, comm=MPI.COMM_SELF)
    yield found
    finish(found)


@pytest.fixture(scope="module")
def typed_data(tmp_path_factory):
    types = GraphTypes((VertexType("paper", VERTICES, 48, "float32"),), (Relation("paper", "cites", "paper"),), "paper")
    graph = typed_graph(types, edges=VERTICES * DEGREE)
    folder = tmp_path_factory.mktemp("memory") / "typed"
    write_dataset(folder, graph, np.zeros(VERTICES, np.int32), 1, method="test", figures={}, seed=0)
    return folder


def loaded(data, world, name):
    values = {
        "data": str(data),
        "model.name": name,
        "model.hidden": 32,
        "sampling.fanout": "2,2,2",
        **({"model.options.heads": 4} if name == "gat" else {}),
    }
    if name == "simple-hgn":
        full = {"strategy.name": "depcomm", "sampling.fanout": "all,all,all", "train.batch_size": "full"}
        values |= {"model.options.heads": 8, "model.options.beta": 0.05, **full}
    config = Config.from_values(values)
    return load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())


@pytest.mark.parametrize("name", ["sage", "gat", "deepgcn", "simple-hgn"])
def test_no_more_is_allocated_than_is_said(name, data, typed_data, world, monkeypatch):
    found = loaded(typed_data if name == "simple-hgn" else data, world, name)
    monkeypatch.setattr(layerwise, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(layer_form, "AT_ONCE_BYTES", 1 << 16)
    every = np.arange(VERTICES)
    # Compile, and load what torch loads when it is watched.
    with Allocations():
        LayerwiseInference(found.ctx, found.topology).outputs(every)
    said, peaks = [], []

    def report(each):
        said.append(each)
        peaks.append(allocated.peak)
        allocated.peak = 0

    with Allocations() as allocated:
        LayerwiseInference(found.ctx, found.topology, report=report).outputs(every)
    for each, peak in zip(said, peaks, strict=True):
        assert each.rounds > 1
        assert each.chunk_bytes <= CHUNK
        most = each.held_bytes + each.chunk_bytes + PER_VERTEX * VERTICES + 4 * layer_form.AT_ONCE_BYTES
        assert most / 6 < peak <= most


def test_a_limit_is_kept_or_refused(data, world):
    found = loaded(data, world, "sage")
    reports = []
    limited = LayerwiseInference(found.ctx, found.topology, 2_000_000, report=reports.append)
    limited.outputs(np.arange(VERTICES))
    assert all(each.held_bytes + each.chunk_bytes <= 2_000_000 for each in reports)
    with pytest.raises(ResourceError, match=r"^layer 1 takes .* even with one vertex at a time .*\(--stage FOLDER\)"):
        LayerwiseInference(found.ctx, found.topology, 300_000).outputs(np.arange(VERTICES))
