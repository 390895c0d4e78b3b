"""One budget for lists and rows: bytes that are read from files, and the split that reads fewest."""

import mmap
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import Topology, load_topology
from leapmpi.features.expected_reads import included
from leapmpi.features.memory_split import file_reads
from leapmpi.plan.homes import rank_offsets
from leapmpi.session.chosen_split import given_memory, reads_on_one_node
from tests.support.graphs import random_graph

ROW = 5 * 4
"""Bytes of a row of features."""

RANKS = 2
FANOUTS = (4, 3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two parts of a graph whose lists fill several blocks of 4096 edges."""
    graph = random_graph(3000, 26, seed=3)
    folder = tmp_path_factory.mktemp("split") / "data"
    write_dataset(folder, graph, np.arange(3000) // 1500, RANKS, method="hash", figures={}, seed=0)
    return folder


@pytest.fixture(scope="module")
def memory(data):
    dataset = open_dataset(data)
    config = Config.from_values({"data": str(data), "sampling.fanout": "4,3", "train.batch_size": 30})
    return reads_on_one_node(config, dataset, load_topology(dataset), [RANKS])[0], dataset


def chance_of_a_page(chances):
    """Chance that one of several independent reads happens."""
    return 1 - np.prod(1 - np.array(chances, np.float64))


def test_a_page_of_rows_is_read_once_unless_its_rows_are_held(memory):
    shared, dataset = memory
    topology = load_topology(dataset)
    roots = np.zeros(dataset.vertices)
    roots[dataset.splits.train] = min(1, 30 / len(dataset.splits.train))
    chances = included(topology.indptr, topology.indices, roots, FANOUTS)
    bounds = rank_offsets(dataset.offsets, RANKS)
    for held in (0, 7, 400, 1500):
        pages = 0
        for first, end in pairwise(bounds):
            own = chances[first:end].copy()
            own[np.argsort(-own, kind="stable")[:held]] = 0
            on_page = defaultdict(list)
            for row, chance in enumerate(own):
                for page in {row * ROW // mmap.PAGESIZE, ((row + 1) * ROW - 1) // mmap.PAGESIZE}:
                    on_page[page].append(chance)
            pages += sum(map(chance_of_a_page, on_page.values()))
        found = shared.read(topology.edges * 4, shared.needs.least_rows + held * ROW)
        assert found == pytest.approx(pages * mmap.PAGESIZE, abs=1)


@pytest.mark.parametrize("fanout", [3, -1])
def test_a_page_of_lists_is_read_once_unless_its_block_is_held(fanout):
    # 5000 edges are on five pages, in two blocks; the list of vertex 1 is on three, of which three draws read each.
    degrees = np.array([600, 2400, 172, 400, 1428])
    indptr = np.concatenate(([0], np.cumsum(degrees)))
    topology = Topology(indptr, np.zeros(5000, np.int32), np.arange(5))
    roots = np.array([0.5, 0.9, 0, 0.25, 0.1])
    (shared,) = file_reads(topology, roots, (fanout,), ROW, [[(0, 5)]])
    pages = [[0.5, 0.9], [0.9], [0.9, 0], [0, 0.25, 0.1], [0.1]]
    rows = shared.needs.least_rows + 5 * ROW
    read = [chance_of_a_page(each) for each in pages]
    for lists, left in ((0, sum(read)), (4096 * 4, read[4]), (5000 * 4, 0)):
        assert shared.read(lists, rows) == pytest.approx(left * mmap.PAGESIZE, abs=1)


def test_more_memory_never_reads_more_and_all_of_it_reads_nothing(memory):
    shared, dataset = memory
    lists, rows = dataset.edges * 4, shared.needs.least_rows + 1500 * ROW
    assert shared.read(lists, rows) == pytest.approx(0, abs=1e-6)
    found = [shared.read(lists * part // 8, rows) for part in range(9)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[4] > 0
    found = [
        shared.read(lists, shared.needs.least_rows + (rows - shared.needs.least_rows) * part // 8) for part in range(9)
    ]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_best_split_reads_no_more_than_any_other(share, memory):
    shared, dataset = memory
    room = RANKS * shared.needs.least_rows + int(share * (dataset.edges * 4 + 3000 * ROW))
    best = shared.best(room)
    assert best.lists + RANKS * best.rows <= room
    assert best.file_bytes == shared.read(best.lists, best.rows)
    most = room - RANKS * shared.needs.least_rows
    for lists in np.linspace(0, most, 17).astype(int).tolist():
        assert best.file_bytes <= shared.read(lists, (room - lists) // RANKS) + 1e-6


def test_without_both_limits_there_is_nothing_to_split(data):
    for values in ({}, {"run.topology_memory": "1M"}, {"strategy.feature_memory": "1M"}):
        assert given_memory(Config.from_values({"data": str(data), **values})) is None
    both = {"run.topology_memory": "1M", "strategy.feature_memory": "2M"}
    assert given_memory(Config.from_values({"data": str(data), **both})) == (1 << 20, 2 << 20)
    assert given_memory(Config.from_values({"data": str(data), **both, "run.topology": "sharded"})) == (
        1 << 20,
        2 << 20,
    )


def test_plan_says_which_split_reads_less(data, capsys):
    common = ["plan", str(data), "--ranks", "2", "--strategies", "pull", "--fanout", "4,3", "--hidden", "8"]
    assert main([*common, "--topology-memory", "1K", "--feature-memory", "1M"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 ranks on one node: an iteration reads " in said
    assert "with as much memory by --topology-memory " in said
    assert main([*common, "--topology-memory", "1M", "--feature-memory", "1M"]) == 0
    assert "no split of that memory reads less" in " ".join(capsys.readouterr().out.split())
    assert main([*common, "--topology-memory", "auto", "--feature-memory", "40K"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 ranks on one node: --topology-memory auto takes " in said
    assert main([*common, "--topology-memory", "auto"]) == 2
    assert "auto is a share of --feature-memory" in capsys.readouterr().err
