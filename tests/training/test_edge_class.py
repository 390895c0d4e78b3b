"""Classes of edges in one process, against formulas written here; scored again, gone on with, refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mpi4py import MPI

from data_prep.assembly.edge_splits.split_edges import split_edges
from leapmpi import Config, train
from leapmpi.cli.main import main
from leapmpi.comm.world import start
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.hdf5 import names
from leapmpi.errors import ConfigError, DataError
from leapmpi.evaluation import held_back_edges
from leapmpi.nn.tensors import to_tensors
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.counter_rng import TRAIN, VAL, DrawKey
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.training_components import components_of
from tests.support import datasets

pytestmark = pytest.mark.compiles

SETTINGS = {
    "train.task": "edge-class", "train.dtype": "float64", "train.batch_size": 50, "model.hidden": 6,
    "model.dropout": 0.0, "sampling.fanout": "4,3", "evaluate.fanout": "all", "run.threads": 1,
    "run.log_level": "error", "run.device": "cpu",
}  # fmt: skip
CLASSES = 3


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Datasets of one directed graph that hold back edges, or labels alone, by what is held back."""
    whole = replace(datasets.make_graph(datasets.LABELS[0]), attributes={"directed": True})
    rng, found = np.random.default_rng(1), {}
    labels, times = rng.integers(-1, CLASSES, whole.edges).astype(np.int32), rng.integers(0, 40, whole.edges)
    whole = replace(whole, edge_data=EdgeData(time=times, labels=labels, classes=CLASSES))
    for held in (names.HELD_EDGES, names.HELD_LABELS):
        found[held] = tmp_path_factory.mktemp("class") / held
        graph = split_edges(whole, (0.8, 0.1, 0.1), 1, by="hash", held=held)
        cut = np.arange(graph.vertices, dtype=np.int32) % 2
        write_dataset(found[held], graph, cut, 2, method="hash", figures={}, seed=0)
    return found


def trainer_of(folder, **settings):
    config = Config.from_values({**SETTINGS, **settings, "data": str(folder)})
    world = start(threads=1, comm=MPI.COMM_SELF)
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    return components_of(config, world, loaded)


def embedded(trainer, sampler, key: DrawKey, vertices: np.ndarray) -> torch.Tensor:
    blocks = sampler.sample(key, vertices)
    rows = trainer.ctx.features.local(blocks[-1].src)
    return trainer.ctx.model([to_tensors(block) for block in blocks], rows)


def by_ends(topology, values: np.ndarray) -> dict:
    """By source and destination, what an edge carries."""
    destination = np.repeat(np.arange(topology.vertices), np.diff(topology.indptr))
    return dict(zip(zip(topology.indices.tolist(), destination.tolist(), strict=True), values.tolist(), strict=True))


@pytest.mark.parametrize("target_edges", ["keep", "leave-out"])
@pytest.mark.parametrize("scorer", ["mlp", "distmult"])
def test_the_loss_is_the_mean_weighted_cross_entropy(folders, scorer, target_edges):
    weights = [1.0, 0.5, 3.0]
    trainer = trainer_of(
        folders["labels"],
        **{"link.scorer": scorer, "link.target_edges": target_edges, "train.class_weights": "1,0.5,3"},
    )
    engine, batch = trainer.engine, trainer.batches.of_epoch(0)[1]
    minibatch = engine.plan(batch, 0, 1)
    engine.fetch(minibatch)
    trainer.ctx.parameters.gradients.zero_()
    loss, found = engine.forward_backward(minibatch), trainer.ctx.parameters.gradients.clone()

    # The same by hand: every vertex is embedded, and every edge of the batch is labelled.
    topology, key = trainer.loaded.topology, DrawKey(TRAIN, 0, 0, 1)
    plain = NodeWiseSampler(topology, (4, 3), 1)
    if target_edges == "leave-out":
        plain.leave_out(key, batch)
    rows = embedded(trainer, plain, key, np.arange(datasets.VERTICES))
    known = by_ends(topology, topology.edge_label)
    labels = torch.tensor([int(known[tuple(edge)]) for edge in batch.tolist()])
    assert (labels >= 0).all()
    scores = trainer.ctx.model.scorer(rows[batch[:, 0]], rows[batch[:, 1]])
    each = F.cross_entropy(scores, labels, reduction="none") * torch.tensor(weights, dtype=torch.float64)[labels]
    trainer.ctx.parameters.gradients.zero_()
    (each.sum() / len(batch)).backward()
    assert abs(loss - (each.sum() / len(batch)).item()) < 1e-12
    assert torch.allclose(found, trainer.ctx.parameters.gradients, rtol=0, atol=1e-12)


def test_an_epoch_trains_every_labelled_edge_once(folders):
    trainer = trainer_of(folders["labels"])
    batches = trainer.batches.of_epoch(0)
    seen = [tuple(edge) for number in range(len(batches)) for edge in batches[number].tolist()]
    known = {
        ends
        for ends, label in by_ends(trainer.loaded.topology, trainer.loaded.topology.edge_label).items()
        if label >= 0
    }
    assert len(seen) == len(set(seen)) == trainer.batches.count
    assert set(seen) == known


@pytest.mark.parametrize(("held", "target_edges"), [("edges", "keep"), ("labels", "keep"), ("labels", "leave-out")])
def test_scores_are_those_of_all_edges_held_back(folders, held, target_edges):
    trainer = trainer_of(folders[held], **{"link.target_edges": target_edges})
    scores, topology = trainer.evaluator.scores(), trainer.loaded.topology
    splits, key = trainer.loaded.dataset.edge_splits, DrawKey(VAL, 0, 0, 0)
    sampler = NodeWiseSampler(topology, (-1, -1), 1)
    if target_edges == "leave-out":
        sampler.leave_out(key, np.array(splits.val)[splits.val_labels >= 0])
    with torch.no_grad():
        rows = embedded(trainer, sampler, key, np.arange(datasets.VERTICES))
        known = splits.val_labels >= 0
        edges, labels = np.array(splits.val)[known], torch.tensor(np.array(splits.val_labels)[known])
        right = trainer.ctx.model.scorer(rows[edges[:, 0]], rows[edges[:, 1]]).argmax(1) == labels
    assert abs(scores["val"] - right.double().mean().item()) < 1e-12
    most = np.bincount(labels.numpy()).max() / len(labels)
    assert trainer.evaluator.trivial_scores()["val"] == pytest.approx(most)


@pytest.mark.parametrize("held", ["edges", "labels"])
def test_by_time_no_edge_is_scored_by_later_ones(folders, held, monkeypatch):
    options = {"sampling.sampler": "temporal", "evaluate.fanout": "3"}
    monkeypatch.setattr(held_back_edges, "GROUP", 16)
    trainer = trainer_of(folders[held], **options)
    evaluator, topology = trainer.evaluator, trainer.loaded.topology
    bounds = {}
    for split in ("val", "test"):
        for key, chosen in evaluator.scoring.held_back.groups(split):
            bounds[key] = evaluator.scoring.held_back.times[split][chosen].min()
    assert len(bounds) > 4
    times, seen = by_ends(topology, topology.edge_time), []
    kind = type(evaluator.scoring.outputs.ctx.sampler.drawing)

    def watched(sampled):
        def watching(sampler, key, roots, batch=None):
            blocks = sampled(sampler, key, roots, batch)
            for block in blocks:
                destinations = np.repeat(block.dst, np.diff(block.indptr))
                ends = zip(block.neighbours.tolist(), destinations.tolist(), strict=True)
                drawn = [times[each] for each in ends]
                assert all(time < bounds[key] for time in drawn)
                seen.append(len(drawn))
            return blocks

        return watching

    # Whether or not sources get numbers.
    for name in ("sample", "sample_unnumbered"):
        monkeypatch.setattr(kind, name, watched(getattr(kind, name)))
    assert evaluator.scores()["val"] is not None
    assert sum(seen)


def test_a_run_goes_on_in_the_same_bits_and_is_scored_again(folders, tmp_path, capsys):
    settings = SETTINGS | {"data": str(folders["labels"]), "train.epochs": 2, "train.class_weights": "balanced"}
    config = Config.from_values(settings)
    whole = train(config.replaced({"run.folder": str(tmp_path / "whole")}))
    first = config.replaced({"run.folder": str(tmp_path / "parts"), "train.epochs": 1})
    train(first)
    parts = train(first.replaced({"train.epochs": 2}))
    assert parts.summary["parameters_digest"] == whole.summary["parameters_digest"]

    flags = ["--json", "--per-class", "--metric", "accuracy,f1-macro"]
    assert main(["evaluate", str(folders["labels"]), str(whole.path), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["val"] == whole.summary["best"]["val"]
    splits = open_for_training(config).edge_splits
    wanted = np.bincount(splits.test_labels[splits.test_labels >= 0], minlength=CLASSES).tolist()
    assert found["classes"]["test"]["support"] == wanted
    assert main(["plan", str(folders["labels"]), "--compare", str(whole.path)]) == 0


def test_what_does_not_fit_is_refused(folders, tmp_path):
    with pytest.raises(ConfigError, match="dot gives a pair one score, not one of each class; use distmult or mlp"):
        trainer_of(folders["labels"], **{"link.scorer": "dot"})
    with pytest.raises(DataError, match=r"holds back labels of edges alone.*--task edge-class"):
        trainer_of(folders["labels"], **{"train.task": "link"})
    with pytest.raises(ConfigError, match="must not see its own edges"):
        trainer_of(folders["edges"], **{"train.task": "link", "link.target_edges": "keep"})
    plain = datasets.make_graph(datasets.LABELS[0])
    write_dataset(tmp_path / "plain", plain, np.zeros(600, np.int32), 1, method="hash", figures={}, seed=0)
    with pytest.raises(DataError, match="has no labels of edges; import the graph again with --edge-labels"):
        trainer_of(tmp_path / "plain")


def test_negatives_are_expected_of_no_batch(folders):
    # All vertices are negatives of links, but classes of edges have none.
    trainer = trainer_of(folders[names.HELD_EDGES], **{"link.negatives": "all"})
    _, roots = trainer.engine.roots.expected(trainer.loaded.dataset, 5)
    assert roots == 10
