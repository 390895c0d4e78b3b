"""Lists of in-neighbours in a file: the same bits, whoever holds them."""

import tempfile
import tracemalloc

import numpy as np
import pytest

import leapmpi
from leapmpi import features
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.config.schema import Config
from leapmpi.config.setting import parse_size
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import Topology, load_topology
from leapmpi.errors import ConfigError
from leapmpi.features.expected_reads import included
from leapmpi.features.shared_reads import shared_reads, shared_reads_bytes
from leapmpi.plan.homes import parts_of_rank, rank_offsets
from leapmpi.runs.text import size_text
from leapmpi.sampling.sharded.topology_shard import TopologyShard, load_shard_of_topology, shard_of
from leapmpi.session import topology_kind
from leapmpi.session.chosen_split import given_memory, reads_on_one_node, with_best_split
from leapmpi.system.unnamed_files import IN_MEMORY, file_system
from tests.support import datasets, own_samplers
from tests.support.equality import here
from tests.support.graphs import random_graph

COMMON = {
    "train.epochs": 1, "train.batch_size": 24, "model.hidden": 8, "sampling.fanout": "4,3", "strategy.name": "leap",
    "run.threads": 1, "run.log_level": "info", "run.device": "cpu",
}  # fmt: skip
AUTO = {"run.topology_memory": "auto"}
PLAIN, WEIGHTED = (datasets.Variant(labels, "metis", 4) for labels in ("single", "single, edges with data"))


@pytest.fixture(scope="module")
def train(world, folder):
    """A function that trains `data` for an epoch in a folder of the given name; returns the run."""
    datasets.build(world.comm, folder, {PLAIN, WEIGHTED})

    def run(name, data, **changes):
        world.comm.barrier()
        values = COMMON | {"data": str(data.folder(folder)), "run.folder": str(folder / name)}
        return leapmpi.train(Config.from_values(values | changes), world.comm)

    return run


def banner(run):
    return next(record for record in run.metrics() if record["event"] == "banner")


CASES = [
    (PLAIN, {"run.topology": "node"}),
    (PLAIN, {"run.topology": "sharded", "strategy.remote": "raw", "evaluate.fanout": "all"}),
    (WEIGHTED, {"run.topology": "node", "sampling.sampler": "weighted", "strategy.remote": "projected"}),
    (WEIGHTED, {"run.topology": "sharded", "sampling.sampler": "labor-0", "model.name": "gcn"}),
]


@pytest.mark.parametrize(("data", "settings"), here(CASES), ids=str)
def test_lists_in_a_file_train_to_the_same_bits(data, settings, train, world):
    if file_system(tempfile.gettempdir()) in IN_MEMORY:
        pytest.skip("temporary files are in memory here")
    name = "-".join(settings.values())
    whole = train(f"whole-{name}", data, **settings)
    apart = train(f"apart-{name}", data, **settings, **{"run.topology_memory": "8K"})
    world.comm.barrier()
    assert apart.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert apart.summary["epochs"][-1]["accuracy"] == whole.summary["epochs"][-1]["accuracy"]
    assert "lists in files" in (apart.path / "log.txt").read_text()
    assert "lists in files" not in (whole.path / "log.txt").read_text()


@pytest.mark.parametrize(
    ("budget", "topology"), here([(size, kind) for size in ("4K", "20K", "1G") for kind in ("node", "sharded")])
)
def test_a_job_splits_one_budget_as_planned_and_trains_to_the_same_bits(budget, topology, train, folder, world):
    if file_system(tempfile.gettempdir()) in IN_MEMORY:
        pytest.skip("temporary files are in memory here")
    settings = {"strategy.remote": "raw", "strategy.feature_memory": budget}
    whole = train(f"one-budget-{budget}-{topology}", PLAIN, **settings)
    settings |= {"run.topology": topology}
    split, again = (train(f"{name}-{budget}-{topology}", PLAIN, **settings, **AUTO) for name in ("split", "again"))
    world.comm.barrier()
    assert split.summary["parameters_digest"] == whole.summary["parameters_digest"]
    chosen, repeated = ({**banner(run)["economy"]["memory_split"]} for run in (split, again))
    assert chosen == repeated
    lists, rows = chosen["lists"][0], chosen["rows"][0]
    size = parse_size(budget, "budget")
    assert lists + world.size * rows <= world.size * size
    assert max(banner(split)["economy"]["feature_memory"]["resident_bytes"]) <= rows
    config = Config.from_values({"data": str(PLAIN.folder(folder)), **COMMON, **settings, **AUTO})
    dataset = open_dataset(PLAIN.folder(folder))
    planned = with_best_split(dataset, load_topology(dataset), config, world.size)
    assert given_memory(planned) == (max(1, lists), rows)
    (reads,) = reads_on_one_node(config, dataset, load_topology(dataset), [world.size])
    # Ranks add up in another order.
    assert reads.read(lists, rows) == pytest.approx(chosen["file_bytes"][0], abs=2)
    assert f"memory split: {size_text(lists)} for in-neighbour lists" in (split.path / "log.txt").read_text()
    if budget == "1G":
        assert chosen["file_bytes"][0] == 0
        # What rows leave is for copies of the lists of other ranks.
        assert (lists > load_topology(dataset).list_bytes) == (topology == "sharded")


@pytest.mark.parametrize(("numbered", "pieces"), here([(False, False), (False, True), (True, False), (True, True)]))
def test_ranks_find_how_often_all_of_them_read_what_they_hold(numbered, pieces, folder, world, monkeypatch):
    if pieces:
        # Lists and messages are cut into many.
        monkeypatch.setattr(features.shared_reads, "_EDGES", 64)
        monkeypatch.setattr(features.shared_reads, "_RECEIVED", 7)
    datasets.build(world.comm, folder, {PLAIN})
    dataset = open_dataset(PLAIN.folder(folder))
    offsets, parts = rank_offsets(dataset.offsets, world.size), parts_of_rank(dataset.parts, world.size, world.rank)
    shard, whole = load_shard_of_topology(dataset, parts, numbered=numbered), load_topology(dataset)
    roots = np.where(np.arange(dataset.vertices) % 3 == 0, 0.04, 0)
    here = slice(shard.first, shard.end)
    found = shared_reads(shard, MPICommunicator(world.comm), offsets, roots[here], (3, -1, 2))
    for chances, fanouts in ((found.lists, (3, -1)), (found.rows, (3, -1, 2))):
        wanted = included(whole.indptr, whole.indices, roots, fanouts)[here]
        np.testing.assert_allclose(chances, wanted, rtol=1e-12)


def test_ranks_without_lists_or_without_vertices_find_it_with_the_others(world):
    # Rank 0 has vertices without in-neighbours, the last rank has no vertices.
    sizes = np.full(world.size, 6)
    sizes[-1] = 0 if world.size > 1 else 6
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    vertices = int(offsets[-1])
    lists = [[] if v < 6 else [v - 6, (v * 5 + 1) % vertices] for v in range(vertices)]
    indptr = np.concatenate(([0], np.cumsum(list(map(len, lists)))))
    whole = Topology(indptr, np.array([each for of_one in lists for each in of_one], np.int32), np.arange(vertices))
    first, end = offsets[world.rank : world.rank + 2].tolist()
    roots = np.full(vertices, 0.1)
    shard = shard_of(whole, first, end, False)
    found = shared_reads(shard, MPICommunicator(world.comm), offsets, roots[first:end], (1, 2))
    np.testing.assert_allclose(found.rows, included(indptr, whole.indices, roots, (1, 2))[first:end], rtol=1e-12)


@pytest.mark.parametrize("in_one_list", [False, True])
def test_ranks_find_it_in_the_memory_that_was_checked(in_one_list, world, monkeypatch):
    if in_one_list:
        # It is longer than what is numbered at a time.
        monkeypatch.setattr(features.shared_reads, "_EDGES", 1 << 14)
        monkeypatch.setattr(features.shared_reads, "_RECEIVED", 1 << 14)
    vertices, degree = 400_000, 8
    offsets = rank_offsets(np.arange(5) * vertices // 4, world.size)
    first, end = offsets[world.rank : world.rank + 2].tolist()
    rng = np.random.default_rng(world.rank)
    # Sources are among the own vertices and a few others.
    sources = np.concatenate((np.arange(first, end), rng.choice(vertices, 20_000))).astype(np.int32)
    indices = sources[rng.integers(0, len(sources), degree * (end - first))]
    indptr = np.arange(0, len(indices) + 1, degree)
    own = Topology(np.where(indptr, len(indices), 0) if in_one_list else indptr, indices, np.arange(first, end))
    shard = TopologyShard(own, first, end, degree * first, vertices, degree * vertices)

    def found():
        return shared_reads(shard, MPICommunicator(world.comm), offsets, np.full(end - first, 0.01), (3, 2))

    # The first call compiles.
    found()
    world.comm.barrier()
    tracemalloc.start()
    found()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The chances of roots are counted, but are the caller's.
    assert 0 < peak < shared_reads_bytes(end - first, len(indices), vertices)
    if world.size == 4:
        assert peak < 24 * vertices


def test_a_rank_whose_own_lists_fit_has_memory_to_find_those_of_others(folder, world, monkeypatch):
    if world.size != 2:
        pytest.skip("two ranks take it")
    graph, data = random_graph(n=240, degree=6), folder / "uneven"
    assignment = (np.arange(240) >= 10).astype(np.int32)
    world.on_root(lambda: write_dataset(data, graph, assignment, 2, method="test", figures={}, seed=0))
    dataset, checked = open_dataset(data), []
    monkeypatch.setattr(topology_kind, "check_memory", lambda needed, *_: checked.append(needed))
    config = Config.from_values({"data": str(data), "run.topology_memory": "2K", "run.topology": "sharded"})
    parts = parts_of_rank(2, 2, world.rank)
    network, offsets = MPICommunicator(world.comm), rank_offsets(dataset.offsets, 2)
    shard, _ = topology_kind.load_lists(config, world, dataset, parts, network, offsets, True, False)
    assert shard.own.in_file == (world.rank == 1)
    own = shard.own
    finding = shared_reads_bytes(shard.end - shard.first, own.edges, 240)
    assert checked[0] == 2 * (own.nbytes + finding - own.list_bytes * own.in_file)
    # The forecast counts the same.
    found = topology_kind.lists_in_memory(config, dataset, load_topology(dataset), 2)
    assert found[world.rank] == checked[0] // 2


def test_a_budget_without_room_for_a_table_is_refused(train):
    with pytest.raises(ConfigError, match="is less than the table of"):
        train("no-room", PLAIN, **AUTO, **{"strategy.feature_memory": "10"})


NAMED = {"sampling.sampler": "labor-0", "sampling.options": ("fixed-size=no",)}
COPIED = [
    ("pull", PLAIN, {"strategy.cache": 0.1, "strategy.remote": "raw"}),
    ("leap", PLAIN, {}),
    ("owner", PLAIN, {"sampling.sampler": "with-replacement"}),
    ("leap", PLAIN, NAMED),
    ("pull", PLAIN, {**NAMED, "strategy.remote": "partial"}),
    ("leap", PLAIN, {"sampling.sampler": f"{own_samplers.__file__}:Sparing"}),
    ("leap", WEIGHTED, {"sampling.sampler": "temporal", "sampling.edge_weights": "ignore"}),
    ("pull", WEIGHTED, {"sampling.sampler": "temporal", "sampling.edge_weights": "ignore"}),
]


@pytest.mark.parametrize(("strategy", "data", "changes"), here(COPIED))
def test_copies_of_remote_lists_train_to_the_same_bits(strategy, data, changes, train, world):
    settings = {"strategy.name": strategy, "run.topology": "sharded", "train.batch_size": 8, "train.epochs": 2}
    settings |= changes
    sampler = changes.get("sampling.sampler", "node-wise").rpartition(":")[2]
    name = f"{strategy}-{sampler}"
    whole = train(f"requested-{name}", data, **settings)
    copied = train(f"copied-{name}", data, **settings, **{"run.topology_memory": "1G"})
    world.comm.barrier()
    assert copied.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert "lists of other ranks are copied" in (copied.path / "log.txt").read_text()
    requested, spared = (run.summary["epochs"][-1]["bytes"]["topology"] for run in (whole, copied))
    assert spared < requested or world.size == 1
