"""One budget for lists and rows: bytes that are read from files, and the split that reads fewest."""

import mmap
from itertools import pairwise

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.features.expected_reads import included
from leapmpi.forecast.memory_split import FileReads, given_memory
from leapmpi.plan.homes import rank_offsets
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
    return FileReads.by_ranks(config, dataset, load_topology(dataset), [RANKS])[RANKS], dataset


def test_rows_without_memory_are_read_page_by_page_those_read_most_are_held(memory):
    shared, dataset = memory
    topology = load_topology(dataset)
    roots = np.zeros(dataset.vertices)
    roots[dataset.splits.train] = min(1, 30 / len(dataset.splits.train))
    chances = included(topology.indptr, topology.indices, roots, FANOUTS)
    bounds = rank_offsets(dataset.offsets, RANKS)
    for held in (0, 7, 400):
        left = sum(np.sort(chances[first:end])[: end - first - held].sum() for first, end in pairwise(bounds))
        wanted = left * mmap.PAGESIZE * (1 + (ROW - 1) / mmap.PAGESIZE)
        all_lists = topology.edges * 4
        assert shared.read(all_lists, shared.least_rows + held * ROW) == pytest.approx(wanted, abs=1)


def test_more_memory_never_reads_more_and_all_of_it_reads_nothing(memory):
    shared, dataset = memory
    lists, rows = dataset.edges * 4, shared.least_rows + 1500 * ROW
    assert shared.read(lists, rows) == pytest.approx(0, abs=1e-6)
    found = [shared.read(lists * part // 8, rows) for part in range(9)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[4] > 0
    found = [shared.read(lists, shared.least_rows + (rows - shared.least_rows) * part // 8) for part in range(9)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_best_split_reads_no_more_than_any_other(share, memory):
    shared, dataset = memory
    room = RANKS * shared.least_rows + int(share * (dataset.edges * 4 + 3000 * ROW))
    best = shared.best(room)
    assert best.lists + RANKS * best.rows <= room
    assert best.file_bytes == shared.read(best.lists, best.rows)
    most = room - RANKS * shared.least_rows
    for lists in np.linspace(0, most, 17).astype(int).tolist():
        assert best.file_bytes <= shared.read(lists, (room - lists) // RANKS) + 1e-6


def test_without_both_limits_there_is_nothing_to_split(data):
    for values in ({}, {"run.topology_memory": "1M"}, {"strategy.feature_memory": "1M"}):
        assert given_memory(Config.from_values({"data": str(data), **values})) is None
    both = {"run.topology_memory": "1M", "strategy.feature_memory": "2M"}
    assert given_memory(Config.from_values({"data": str(data), **both})) == (1 << 20, 2 << 20)
    assert given_memory(Config.from_values({"data": str(data), **both, "run.topology": "sharded"})) is None


def test_plan_says_which_split_reads_less(data, capsys):
    common = ["plan", str(data), "--ranks", "2", "--strategies", "pull", "--fanout", "4,3", "--hidden", "8"]
    assert main([*common, "--topology-memory", "1K", "--feature-memory", "1M"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 ranks on one node: an iteration reads " in said
    assert "with as much memory by --topology-memory " in said
    assert main([*common, "--topology-memory", "1M", "--feature-memory", "1M"]) == 0
    assert "no split of that memory reads less" in " ".join(capsys.readouterr().out.split())
