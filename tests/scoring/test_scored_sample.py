"""Scoring a sample of each split: which vertices and edges it holds, and that scores are theirs alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from mpi4py import MPI

from data_prep.assembly.edge_splits.split_edges import split_edges
from leapmpi.comm.world import start
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.hdf5 import names
from leapmpi.scoring.scored_sample import scored_sample
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.counter_rng import TEST, VAL
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.training_components import components_of
from tests.support import datasets

SETTINGS = {"model.hidden": 4, "sampling.fanout": "3,2", "run.threads": 1, "run.device": "cpu"}


def trainer_of(folder, **settings):
    config = Config.from_values({**SETTINGS, **settings, "data": str(folder)})
    world = start(threads=1, comm=MPI.COMM_SELF)
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    return components_of(config, world, loaded)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_sample_depends_on_names_alone_and_splits_and_seeds_have_their_own(columns):
    rng = np.random.default_rng(0)
    ids = np.arange(600)[:, None] if columns == 1 else rng.integers(0, 90, (600, 2))
    ids = np.unique(ids, axis=0)
    kept = ids[scored_sample(VAL, 5, ids, 100)]
    assert len(kept) == 100
    order = rng.permutation(len(ids))
    again = ids[order][scored_sample(VAL, 5, ids[order], 100)]
    assert set(map(tuple, again)) == set(map(tuple, kept))
    for stream, seed in ((TEST, 5), (VAL, 6)):
        shared = np.intersect1d(scored_sample(VAL, 5, ids, 100), scored_sample(stream, seed, ids, 100))
        assert len(shared) < 50
    assert np.array_equal(scored_sample(VAL, 5, ids, 0), np.arange(len(ids)))
    assert np.array_equal(scored_sample(VAL, 5, ids, len(ids)), np.arange(len(ids)))


def test_an_edge_and_its_reverse_are_sampled_apart_and_loops_too():
    ends = np.arange(600).reshape(300, 2)
    both = np.concatenate([ends, ends[:, ::-1]])
    kept = scored_sample(VAL, 5, both, 300)
    directions = np.bincount(kept % 300, minlength=300)
    assert 100 < np.count_nonzero(directions == 1) < 200
    loops = np.repeat(np.arange(300)[:, None], 2, axis=1)
    assert not np.array_equal(scored_sample(VAL, 5, loops, 100), np.arange(100))


def test_the_sample_is_uniform():
    counts = np.zeros(60, np.int64)
    for seed in range(600):
        counts[scored_sample(TEST, seed, np.arange(60), 20)] += 1
    assert np.abs(counts - 200).max() < 5 * np.sqrt(200 * 2 / 3)


@pytest.mark.compiles
def test_scores_are_those_of_the_sample(tmp_path):
    folders = {}
    for name in ("uneven", datasets.WHOLE):
        graph = datasets.make_graph("single")
        cut = np.zeros(graph.vertices, np.int32) if name == datasets.WHOLE else datasets.assign(graph, name, 3)
        folders[name] = tmp_path / name
        write_dataset(folders[name], graph, cut, int(cut.max()) + 1, method=name, figures={}, seed=1)
    found = {}
    for name, folder in folders.items():
        trainer = trainer_of(folder, **{"evaluate.limit": 40})
        evaluator, topology = trainer.evaluator, trainer.loaded.topology
        found[name] = {split: set(topology.original_id[ids]) for split, (_, ids) in evaluator.scoring.splits.items()}
        assert [evaluator.size(split) for split in ("val", "test")] == [40, 40]
        outcome = evaluator.scoring.outcomes("test")
        assert sum(len(labels) for _, labels in outcome) == 40
        scores = evaluator.scores()
        answers, labels = (np.concatenate(each) for each in zip(*outcome, strict=True))
        assert scores["test"] == pytest.approx((answers.argmax(axis=1) == labels).mean())
    assert found["uneven"] == found[datasets.WHOLE]


@pytest.mark.compiles
@pytest.mark.parametrize("target_edges", ["keep", "leave-out"])
def test_a_sample_of_edges_keeps_their_labels_and_times_beside_them(target_edges, tmp_path):
    graph = replace(datasets.make_graph("single"), attributes={"directed": True})
    rng = np.random.default_rng(1)
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    # What an edge carries tells which edge it is.
    labels = ((graph.indices + destination) % 4 - 1).astype(np.int32)
    times = graph.indices.astype(np.int64) * 1000 + destination
    graph = replace(graph, edge_data=EdgeData(time=times, labels=labels, classes=3))
    split = split_edges(graph, (0.6, 0.2, 0.2), 1, by="hash", held=names.HELD_LABELS)
    folder = tmp_path / "data"
    write_dataset(folder, split, rng.integers(0, 2, graph.vertices).astype(np.int32), 2, method="", figures={}, seed=1)
    settings = {"train.task": "edge-class", "link.target_edges": target_edges}
    whole = trainer_of(folder, **settings).evaluator
    evaluator = trainer_of(folder, **settings, **{"evaluate.limit": 30}).evaluator
    names_of = evaluator.scoring.outputs.topology.original_id
    number = np.argsort(split.original_id)[np.searchsorted(np.sort(split.original_id), names_of)]
    for name in ("val", "test"):
        edges = number[evaluator.scoring.held_back.edges[name]]
        assert len(edges) == evaluator.size(name) == 30 < evaluator.whole_sizes[name] == whole.size(name)
        assert np.array_equal((edges.sum(axis=1)) % 4 - 1, evaluator.scoring._labels[name])
        assert np.array_equal(edges[:, 0] * 1000 + edges[:, 1], evaluator.scoring.held_back.times[name])
        assert evaluator.scoring.outcomes(name)[0][0].shape[0] == 30
    assert evaluator.scores().keys() == {"val", "test"}


@pytest.mark.compiles
def test_links_are_scored_by_a_sample(tmp_path):
    graph = split_edges(datasets.make_graph("single"), (0.8, 0.1, 0.1), 1, by="hash")
    write_dataset(tmp_path / "data", graph, np.zeros(graph.vertices, np.int32), 1, method="", figures={}, seed=1)
    trainer = trainer_of(tmp_path / "data", **{"train.task": "link", "evaluate.limit": 25})
    assert trainer.evaluator.size("test") == 25 < trainer.evaluator.whole_sizes["test"]
    scores = trainer.evaluator.scores()
    assert 0 <= scores["test"] <= 1
