"""What partition reports of a cut, against counting by hand; tests/parallel sets it against what a job reads."""

import json

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.partitioning import part_ordering
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.quality_report import copies_of_files, count_copies, report_on, sampled_report
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.dataset_writer import write_part_files
from leapmpi.dataset.graph_file import write_graph
from leapmpi.system.worker_threads import _Processors
from tests.support.graphs import communities, from_edges, random_graph


@pytest.mark.parametrize("parts", [1, 3, 60])
def test_replication_counts_homes_and_parts_of_out_neighbours(parts):
    graph = random_graph()
    assignment = (np.arange(60) % parts).astype(np.int32)
    needed = {(v, assignment[v]) for v in range(60)}
    heads = np.repeat(np.arange(60), np.diff(graph.indptr))
    needed |= set(zip(graph.indices.tolist(), assignment[heads], strict=True))
    found = count_copies(graph, assignment, parts)
    assert found.total == len(needed)


@pytest.mark.parametrize(("parts", "pairs"), [(1, True), (3, True), (70, True), (70, False)])
def test_tasks_count_the_same_by_the_files_of_their_parts(parts, pairs, tmp_path, monkeypatch):
    if not pairs:
        monkeypatch.setattr(part_ordering, "_MOST_PARTS", 69)
    graph = random_graph(n=240, degree=6)
    assignment = (np.arange(240) % parts).astype(np.int32)
    whole = count_copies(graph, assignment, parts)
    offsets, found = np.concatenate(([0], np.cumsum(np.bincount(assignment)))), []
    for chosen in (range(parts // 3), range(parts // 3, parts)):
        files = write_part_files(tmp_path, graph, assignment, parts, chosen)
        found.append(copies_of_files(files, chosen, offsets))
    assert sum(each.total for each in found) == whole.total
    assert np.array_equal(np.concatenate([each.weights for each in found]), whole.weights)


def test_replication_beyond_one_word_of_parts():
    star = from_edges(130, [(0, v) for v in range(1, 130)])
    assert report_on(star, np.arange(130, dtype=np.int32), 130, None).replication == (130 + 2 * 129) / 130


@pytest.mark.parametrize("parts", [5, 70])
def test_threads_count_the_same(monkeypatch, parts):
    graph = random_graph(5_000, 12)
    request, found = PartitionRequest((parts,), "hash", 0), []
    for threads in (1, 2, 5):
        monkeypatch.setattr(_Processors, "count", threads)
        result = partition_graph(graph, request)
        report = report_on(graph, result.assignment, parts, None)
        found.append({**result.figures(), **report.figures(), "edges": result.edges.tolist()})
    assert found[1:] == found[:1] * 2


def test_cut_on_fewer_ranks_is_that_of_contiguous_groups():
    graph = communities()
    assignment = partition_graph(graph, PartitionRequest((7,), "metis", 0)).assignment
    found = report_on(graph, assignment, 7, None).on_ranks
    heads = np.repeat(np.arange(400), np.diff(graph.indptr))
    for ranks in (2, 4, 7):
        rank_of = assignment * ranks // 7
        assert found[ranks] == pytest.approx((rank_of[heads] != rank_of[graph.indices]).mean())
    assert list(found) == [2, 4, 7]
    assert report_on(graph, np.zeros(400, np.int32), 1, None).on_ranks == {}


def test_locality_and_rows_of_a_graph_without_choice():
    """Pairs of vertices, all of which train: of each pair both are read, and the other one is always elsewhere."""
    graph = from_edges(8, [(0, 4), (1, 5), (2, 6), (3, 7)], split=np.ones(8, np.int8))
    report = sampled_report(graph, (np.arange(8) >= 4).astype(np.int32), 2, (3,), 8)
    assert report.locality == 0.5
    assert report.rows["leap"] == report.epoch_rows["leap"] == 8
    assert report.vip_rows["leap"] == pytest.approx(8)


def test_an_epoch_ends_with_a_smaller_batch():
    graph = from_edges(8, [(0, 4), (1, 5), (2, 6), (3, 7)], split=np.ones(8, np.int8))
    report = sampled_report(graph, (np.arange(8) >= 4).astype(np.int32), 2, (3,), 3)
    assert (report.rows["leap"], report.epoch_rows["leap"]) == (3, 8)


def test_no_training_vertices_no_training():
    assert report_on(from_edges(4, [(0, 1)]), np.zeros(4, np.int32), 1, ((2,), 4)).sampled is None


def prepare(*words):
    assert main([str(word) for word in words]) == 0


def test_the_report_is_stored_and_shown(capsys, tmp_path):
    write_graph(tmp_path / "graph.h5", communities())
    prepare("partition", tmp_path / "graph.h5", tmp_path / "data", "--parts", 2, "--fanout", "5,5", "--batch-size", 16)
    said = capsys.readouterr().out
    assert "fan-out 5,5, 16 roots" in " ".join(said.split())
    prepare("info", tmp_path / "data", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["report_fanout"], found["report_batch_size"]) == ("5,5", 16)
    assert 0.5 < found["micrograph_locality"] < 1
    assert 1 < found["replication"] < 2
    assert found["cut_on_ranks"] == f"2:{found['edge_cut_share']:.6g}"
    assert 0 < found["leap_remote_rows"] < found["pull_remote_rows"]
