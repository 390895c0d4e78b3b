"""Link prediction in one process, against formulas written here: the loss, and the ranks of edges held back."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mpi4py import MPI

from data_prep.assembly.edge_splits.split_edges import split_edges
from leapmpi import train
from leapmpi.comm.world import start
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.engine.own_model import findings
from leapmpi.errors import ConfigError, DataError
from leapmpi.nn.tensors import to_tensors
from leapmpi.sampling.typed_negatives import DESTINATION
from leapmpi.session.session import check_settings
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.counter_rng import TRAIN, VAL, DrawKey
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.training_components import components_of
from tests.support import datasets

pytestmark = pytest.mark.compiles

SETTINGS = {
    "train.task": "link", "train.dtype": "float64", "train.batch_size": 50, "model.hidden": 6, "model.dropout": 0.0,
    "sampling.fanout": "4,3", "evaluate.fanout": "all", "link.negatives_per_edge": 2, "link.eval_negatives": "30",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    graph = replace(datasets.make_graph(datasets.LABELS[0]), attributes={"directed": True})
    folder = tmp_path_factory.mktemp("link") / "data"
    graph = split_edges(graph, (0.9, 0.05, 0.05), 1)
    write_dataset(folder, graph, np.zeros(graph.vertices, np.int32), 1, method="hash", figures={}, seed=0)
    return folder


def trainer_of(folder, **settings):
    config = Config.from_values({**SETTINGS, **settings, "data": str(folder)})
    world = start(threads=1, comm=MPI.COMM_SELF)
    loaded = load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    return components_of(config, world, loaded)


def embeddings(trainer, sampler, key: DrawKey, vertices: np.ndarray) -> torch.Tensor:
    """Outputs of the model for `vertices`, from their own blocks and all features."""
    blocks = sampler.sample(key, vertices)
    rows = trainer.ctx.features.local(blocks[-1].src)
    return trainer.ctx.model([to_tensors(block) for block in blocks], rows)


def test_the_loss_is_the_mean_cross_entropy_over_edges_and_negatives(folder):
    trainer = trainer_of(folder)
    engine, batch = trainer.engine, trainer.batches.of_epoch(0)[1]
    minibatch = engine.plan(batch, 0, 1)
    engine.fetch(minibatch)
    trainer.ctx.parameters.gradients.zero_()
    loss, found = engine.forward_backward(minibatch), trainer.ctx.parameters.gradients.clone()

    # The same by hand: every vertex is embedded, targets are 1 for edges and 0 for negatives.
    key = DrawKey(TRAIN, 0, 0, 1)
    rows = embeddings(trainer, trainer.ctx.sampler, key, np.arange(datasets.VERTICES))
    negatives = engine.roots.negatives.draw(key, engine.roots.edges.described(batch), 2, DESTINATION)
    pairs = np.concatenate([batch, *(np.stack([batch[:, 0], each], axis=1) for each in negatives.T)])
    scores = (rows[pairs[:, 0]] * rows[pairs[:, 1]]).sum(dim=1)
    targets = torch.zeros(len(pairs), dtype=torch.float64)
    targets[: len(batch)] = 1
    wanted = F.binary_cross_entropy_with_logits(scores, targets)
    trainer.ctx.parameters.gradients.zero_()
    wanted.backward()
    assert abs(loss - wanted.item()) < 1e-12
    assert torch.allclose(found, trainer.ctx.parameters.gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize("negatives", ["30", "all"])
def test_ranks_are_those_of_a_sort_of_all_scores(negatives, folder):
    trainer = trainer_of(folder, **{"link.eval_negatives": negatives})
    scorer, topology = trainer.evaluator, trainer.loaded.topology
    scorer.scores()
    with torch.no_grad():
        sampler, key = scorer.scoring.outputs.ctx.sampler, DrawKey(VAL, 0, 0, 0)
        rows = embeddings(trainer, sampler, key, np.arange(datasets.VERTICES)).numpy()
    splits = trainer.loaded.dataset.edge_splits
    held_back = {tuple(each) for each in np.concatenate([splits.val, splits.test]).tolist()}
    known = held_back | {(int(u), v) for v in range(topology.vertices) for u in _sources(topology, v)}
    ranks = []
    for u, v in splits.test.tolist():
        drawn = scorer.scoring._negatives("test", np.array([[u, v]]), DESTINATION)[0]
        candidates = [w for w in range(topology.vertices) if w != u] if negatives == "all" else drawn.tolist()
        others = [rows[u] @ rows[w] for w in candidates if (u, w) not in known]
        score = rows[u] @ rows[v]
        ranks.append(1 + sum(s > score + 1e-12 for s in others) + sum(abs(s - score) <= 1e-12 for s in others) / 2)
    ranks = np.array(ranks)
    found = scorer.details["test"]
    assert abs(found["mrr"] - (1 / ranks).mean()) < 1e-9
    for most in (1, 10, 20, 50, 100):
        assert found[f"hits-{most}"] == (ranks <= most).mean()
    assert 0 <= found["auc"] <= 1


def _sources(topology, v: int) -> np.ndarray:
    return topology.indices[topology.indptr[v] : topology.indptr[v + 1]]


def test_a_dataset_whose_topology_has_an_edge_to_be_tested_is_refused(tmp_path):
    graph = datasets.make_graph(datasets.LABELS[0])
    destination = int(np.flatnonzero(np.diff(graph.indptr))[0])
    edge = np.array([[int(graph.indices[graph.indptr[destination]]), destination]])
    leaky = replace(graph, edge_splits=EdgeSplits(np.empty((0, 2), np.int64), edge))
    write_dataset(tmp_path / "data", leaky, np.zeros(600, np.int32), 1, method="hash", figures={}, seed=0)
    with pytest.raises(DataError, match=r"edge_splits/test, row 0.*training would see"):
        trainer_of(tmp_path / "data")


OWN = """
import torch
class Net(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        assert (in_channels, out_channels) == (5, 6), (in_channels, out_channels)
        self.lin = torch.nn.Linear(in_channels, out_channels)
    def forward(self, x, adjs):
        return self.lin(x)[: adjs[-1][2][1]]
"""


def test_a_model_of_ones_own_is_examined_as_it_is_trained_on_edges_and_learned_rows(folder, tmp_path):
    graph = _bare(folder, tmp_path)
    (tmp_path / "net.py").write_text(OWN)
    own = {"model.name": f"{tmp_path / 'net.py'}:Net", "model.missing_features": "learned:5"}
    config = Config.from_values({**SETTINGS, **own, "data": str(graph), "train.early_stop": 1})
    world = start(threads=1, comm=MPI.COMM_SELF)
    # No vertex is in a split: edges that are held back are what training stops by.
    dataset = check_settings(config, world)
    assert findings(config, load(config, dataset, world, torch.device("cpu"), PhaseTimers()), world) == []
    assert not len(dataset.splits.train)


def test_features_of_edges_are_read_where_edges_are_trained(tmp_path):
    graph = replace(datasets.make_graph(datasets.LABELS[0]), attributes={"directed": True})
    features = np.random.default_rng(0).standard_normal((graph.edges, 3)).astype(np.float32)
    losses = []
    for number, given in enumerate((features, 100 * features)):
        whole = split_edges(replace(graph, edge_data=EdgeData(features=given)), (0.9, 0.05, 0.05), 1)
        cut = np.zeros(graph.vertices, np.int32)
        write_dataset(tmp_path / str(number), whole, cut, 1, method="hash", figures={}, seed=0)
        trainer = trainer_of(tmp_path / str(number), **{"model.name": "gat", "model.options.heads": 2})
        minibatch = trainer.engine.plan(trainer.batches.of_epoch(0)[0], 0, 0)
        trainer.engine.fetch(minibatch)
        losses.append(trainer.engine.forward_backward(minibatch))
    assert losses[0] != losses[1]


def _bare(folder, tmp_path):
    made = datasets.make_graph(datasets.LABELS[0])
    graph = replace(made, features=None, split=None, attributes={"directed": True})
    write_dataset(
        tmp_path / "bare", split_edges(graph, (0.9, 0.05, 0.05), 1), np.zeros(graph.vertices, np.int32), 1,
        method="hash", figures={}, seed=0,
    )  # fmt: skip
    return tmp_path / "bare"


def test_early_stop_needs_edges_held_back(tmp_path):
    graph = datasets.make_graph(datasets.LABELS[0])
    write_dataset(
        tmp_path / "data", graph, np.zeros(graph.vertices, np.int32), 1, method="hash", figures={}, seed=0
    )  # its vertices have splits
    config = Config.from_values({**SETTINGS, "data": str(tmp_path / "data"), "train.early_stop": 1})
    with pytest.raises(ConfigError, match="no validation edges"):
        check_settings(config, start(threads=1, comm=MPI.COMM_SELF))


def test_where_no_edge_is_held_back_it_is_said_how_some_are(tmp_path, capfd):
    graph = datasets.make_graph(datasets.LABELS[0])
    write_dataset(
        tmp_path / "data", graph, np.zeros(graph.vertices, np.int32), 1, method="hash", figures={}, seed=0
    )  # its vertices have splits
    config = Config.from_values({**SETTINGS, "data": str(tmp_path / "data"), "run.folder": str(tmp_path / "run")})
    train(config.replaced({"train.epochs": 1}))
    output = "".join(capfd.readouterr())
    assert "no validation edges: the last epoch counts as the best; leapmpi-prep partition --split-edges" in output
    assert "ranked against" not in output


def test_edges_are_ranked_among_the_pairs_that_the_source_gives(folder, tmp_path):
    whole = replace(datasets.make_graph(datasets.LABELS[0]), attributes={"directed": True})
    graph = split_edges(whole, (0.9, 0.05, 0.05), 1)
    pairs = np.random.default_rng(4).integers(0, graph.vertices, (40, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    graph = replace(graph, edge_splits=replace(graph.edge_splits, test_negatives=pairs))
    write_dataset(tmp_path / "data", graph, np.zeros(graph.vertices, np.int32), 1, method="hash", figures={}, seed=0)
    trainer = trainer_of(tmp_path / "data", **{"link.eval_negatives": "auto"})
    scorer = trainer.evaluator
    assert scorer.scoring.ranked_against == "100 drawn vertices in val and given negatives in test"
    scorer.scores()
    with torch.no_grad():
        sampler, key = scorer.scoring.outputs.ctx.sampler, DrawKey(VAL, 0, 0, 0)
        rows = embeddings(trainer, sampler, key, np.arange(datasets.VERTICES)).numpy()
    negatives = np.sort((rows[pairs[:, 0]] * rows[pairs[:, 1]]).sum(1))
    splits = trainer.loaded.dataset.edge_splits
    true = (rows[splits.test[:, 0]] * rows[splits.test[:, 1]]).sum(1)
    below = np.searchsorted(negatives, true)
    assert scorer.details["test"]["auc"] == pytest.approx((below / len(pairs)).mean())
    assert scorer.details["test"]["hits-10"] == pytest.approx((len(pairs) - below < 10).mean())
    assert scorer.trivial_scores()["test"] == 0.5
    with pytest.raises(ConfigError, match="holds no given negatives"):
        trainer_of(folder, **{"link.eval_negatives": "given"})


@pytest.mark.parametrize(("negatives", "roots"), [("uniform", 6 * (2 + 2)), ("shared", 2 * 6 + 2), ("all", None)])
def test_the_roots_that_a_batch_is_expected_to_have(negatives, roots, folder):
    trainer = trainer_of(folder, **{"link.negatives": negatives})
    vertices, found = trainer.engine.roots.expected(trainer.loaded.dataset, 6)
    assert found == (len(vertices) if roots is None else roots) <= len(vertices)
