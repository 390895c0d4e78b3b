"""Ranks of typed edges that are held back: each end among the vertices of its type, without known edges."""

import numpy as np
import pytest
import torch
from mpi4py import MPI

from leapmpi.comm.world import start
from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.training.training_components import components_of
from tests.support.typed_links import with_triples_held_back
from tests.support.typed_models import SCHEMA, whole_graph

pytestmark = pytest.mark.compiles

SETTINGS = {
    "train.task": "link", "train.dtype": "float64", "model.name": "rgcn", "model.hidden": 6, "sampling.fanout": "3",
    "model.missing_features": "learned:6", "link.scorer": "complex",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links") / "data"
    graph = with_triples_held_back(whole_graph())
    write_dataset(folder, graph, np.zeros(graph.vertices, np.int32), 1, method="hash", figures={}, seed=0)
    return folder


@pytest.mark.parametrize("negatives", ["all", "7"])
@pytest.mark.parametrize("scorer", ["complex", "complex-reciprocal"])
def test_ranks_are_those_of_a_sort_of_all_scores(scorer, negatives, folder):
    settings = SETTINGS | {"link.scorer": scorer, "link.eval_negatives": negatives, "data": str(folder)}
    config = Config.from_values(settings)
    world = start(threads=1, comm=MPI.COMM_SELF)
    trainer = components_of(
        config, world, load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    )
    scoring, topology = trainer.evaluator.scoring, trainer.loaded.topology
    trainer.evaluator.scores()
    key = scoring.held_back.key("val")
    _, rows = scoring.held_back.embedded(key, scoring.held_back.to_embed(None))
    destinations = np.repeat(np.arange(topology.vertices), np.diff(topology.indptr))
    known = set(zip(topology.indices.tolist(), destinations.tolist(), topology.relation.tolist(), strict=True))
    known |= {tuple(each) for edges in scoring.edges.values() for each in edges.tolist()}
    types = SCHEMA.of_original(topology.original_id)

    def score(u: int, v: int, r: int, end: int) -> float:
        with torch.no_grad():
            if scorer == "complex-reciprocal" and end == 0:
                return trainer.ctx.model.scorer.back(rows[[v]], rows[[u]], torch.tensor([r])).item()
            return trainer.ctx.model.scorer(rows[[u]], rows[[v]], torch.tensor([r])).item()

    edges, ranks = scoring.edges["val"], []
    drawn = {end: scoring._negatives("val", edges, end) for end in scoring.replaced}
    for end in scoring.replaced:
        for number, edge in enumerate(edges.tolist()):
            wanted = SCHEMA.ends[edge[2], end]
            of_type = np.flatnonzero(types == wanted)
            others = of_type if negatives == "all" else drawn[end][number]
            assert set(others.tolist()) <= set(of_type.tolist())
            made = [[w, edge[1], edge[2]] if end == 0 else [edge[0], w, edge[2]] for w in others.tolist()]
            scores = [score(*each, end) for each in made if tuple(each) not in known]
            ranks.append(1 + sum(each > score(*edge, end) for each in scores))
    found, ranks = scoring.details["val"], np.array(ranks)
    assert len(ranks) == 2 * len(edges) > 0
    assert found["mrr"] == pytest.approx((1 / ranks).mean(), abs=1e-9)
    assert [found[f"hits-{most}"] for most in (1, 3, 10)] == [(ranks <= most).mean() for most in (1, 3, 10)]
    alike = scoring.trivial_scores(trainer.evaluator.metric)["val"]
    assert alike == pytest.approx(0.5)


def test_without_edges_held_back_there_is_nothing_to_rank(tmp_path):
    graph = whole_graph()
    write_dataset(tmp_path / "data", graph, np.zeros(graph.vertices, np.int32), 1, method="hash", figures={}, seed=0)
    config = Config.from_values(SETTINGS | {"data": str(tmp_path / "data")})
    world = start(threads=1, comm=MPI.COMM_SELF)
    trainer = components_of(
        config, world, load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())
    )
    assert trainer.evaluator.scores() == {"val": None, "test": None}
