"""Training the GPU's way on the CPU: the losses of the CPU's way, the same bits twice, in any place of rows."""

import os
from dataclasses import replace

import numpy as np
import pytest

import leapmpi
from data_prep.assembly.edge_splits.split_edges import split_edges
from leapmpi.comm.flow_control import wait_for
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.device.device_sampler import DeviceSampler
from leapmpi.features.shards import row_placement
from tests.support import datasets
from tests.support.equality import here

EVEN = datasets.Variant("single", "metis", 4)
LINK = {"train.task": "link", "link.eval_negatives": "10"}
ON_EDGES = {
    "link": LINK,
    "link, weighted": LINK | {"sampling.sampler": "weighted", "sampling.options": ["weights=edge"]},
    "link, temporal": LINK | {"sampling.sampler": "temporal", "strategy.time_steps": "N"},
    "temporal": {
        "sampling.sampler": "temporal",
        "sampling.options": ["draw=latest"],
        "sampling.edge_weights": "ignore",
    },
    "weights of edges": {"model.name": "gcn"},
    "features of edges": {"model.name": "gat"},
}
"""Trainings whose draws read, or leave out, what edges carry."""
TABLES = {
    "ladies": ["layer-size=60"],
    "labor-i": ["rounds=2"],
    "fast-gcn": ["layer-size=90"],
    "cluster-gcn": ["clusters=20", "per-batch=4"],
    "graph-saint": ["size=60"],
}


@pytest.fixture(scope="module")
def train(world, folder):
    """A function that trains on the device of that name; the summary."""
    datasets.build(world.comm, folder, {EVEN})
    if world.rank == 0:
        graph = datasets.make_graph("single, edges with data")
        times = np.random.default_rng(6).integers(0, 50, graph.edges)
        graph = replace(graph, attributes={"directed": True}, edge_data=replace(graph.edge_data, time=times))
        cut = datasets.assign(graph, "uneven", 4)
        split = split_edges(graph, (0.8, 0.1, 0.1), 5)
        write_dataset(folder / "edges", split, cut, 4, method="uneven", figures={}, seed=1)
    wait_for(world.comm.Ibarrier)

    def run(name, device, **changes):
        values = {"data": str(EVEN.folder(folder)), "train.epochs": 1, "train.batch_size": 24, "model.hidden": 8,
                  "sampling.fanout": "4,3", "strategy.remote": "raw", "strategy.name": "leap", "run.threads": 1,
                  "run.folder": str(folder / name), "run.log_level": "error", "run.device": device}  # fmt: skip
        world.comm.barrier()
        found = leapmpi.train(Config.from_values(values | changes), world.comm)
        world.comm.barrier()
        return found.summary

    return run


def test_places_of_rows_do_not_matter(world, train, monkeypatch):
    if world.size > 2 and "LEAPMPI_SOAK" not in os.environ:
        pytest.skip("one rank has local rows, two have remote ones too")
    host = train("host", "cpu")["epochs"][0]["loss"]
    digests = set()
    for place in (row_placement.DEVICE, row_placement.PINNED, row_placement.STAGED):
        monkeypatch.setattr(row_placement, "choose_placement", lambda *_, place=place: place)
        found = train(place, "stand-in")
        assert found["epochs"][0]["loss"] == pytest.approx(host, rel=1e-5)
        digests.add(found["parameters_digest"])
    assert len(digests) == 1
    fewer = train("fewer", "stand-in", **{"train.dtype": "bfloat16"})
    assert fewer["epochs"][0]["loss"] == pytest.approx(host, rel=0.05)
    assert fewer["parameters_digest"] not in digests


@pytest.mark.parametrize("name", here([*ON_EDGES, *TABLES]))
def test_draws_on_the_device_give_the_losses_of_the_host(name, train, folder, monkeypatch):
    drawn, genuine = [], DeviceSampler.sample

    def sample(self, *arguments):
        drawn.append(type(self.drawing))
        return genuine(self, *arguments)

    monkeypatch.setattr(DeviceSampler, "sample", sample)
    changes = ON_EDGES.get(name, {"sampling.sampler": name, "sampling.options": TABLES.get(name, [])})
    if name in ON_EDGES:
        changes = {
            "data": str(folder / "edges"),
            "train.batch_size": 300 if changes.items() >= LINK.items() else 24,
        } | changes
    host = train(f"{name} host", "cpu", **changes)["epochs"][0]["loss"]
    assert not drawn
    assert train(f"{name} device", "stand-in", **changes)["epochs"][0]["loss"] == pytest.approx(host, rel=1e-5)
    assert drawn
