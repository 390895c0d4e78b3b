"""Typed graphs train, score and restart on any number of ranks, as one process does."""

import os

import numpy as np
import pytest
from mpi4py import MPI

from leapmpi import Config, train
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType
from leapmpi.errors import ConfigError
from leapmpi.tools.forecast import compare
from tests.parallel.test_restart import epochs, stopped
from tests.support.equality import here
from tests.support.typed_graphs import typed_graph

SCHEMA = GraphTypes(
    (
        VertexType("paper", 120, 6, "float32"),
        VertexType("author", 90),
        VertexType("field", 7, 3, "float16"),
        VertexType("city", 5),
    ),
    (
        Relation("author", "writes", "paper"),
        Relation("paper", "cites", "paper"),
        Relation("paper", "written_by", "author", 0),
        Relation("author", "reviews", "paper"),
        Relation("field", "names", "paper"),
        Relation("paper", "of", "city"),
    ),
    "paper",
)
"""Cities are reached by no paper; fields receive nothing; two relations join authors and papers."""

SOAKS = "LEAPMPI_SOAK" in os.environ

COMMON = {
    "model.name": "rgcn", "model.hidden": 8, "train.epochs": 2, "train.batch_size": 12, "sampling.fanout": "4,3",
    "train.dtype": "float64", "run.threads": 1, "run.log_level": "error", "run.device": "cpu",
}  # fmt: skip
CASES = {
    "leap, raw": {"strategy.name": "leap", "strategy.remote": "raw"},
    "leap on a ring, partial": {"strategy.name": "leap", "strategy.time_steps": "N", "strategy.remote": "partial"},
    "pull, projected, rsage": {"strategy.name": "pull", "strategy.remote": "projected", "model.name": "rsage"},
    "sharded, raw": {"run.topology": "sharded", "strategy.remote": "raw", "strategy.name": "pull"},
    "sharded, partial, labor": {
        "run.topology": "sharded", "strategy.remote": "partial", "sampling.sampler": "labor-0", "model.name": "rsage",
    },
    "weighted": {"sampling.sampler": "weighted", "strategy.remote": "partial"},
    "with replacement": {"sampling.sampler": "with-replacement", "sampling.relation_fanout": ("*:cites:*=all,0",)},
    "stand-in": {"run.device": "stand-in", "strategy.remote": "raw"},
    "scored exactly": {"evaluate.fanout": "all", "sampling.relation_fanout": ("*:cites:*=0,3",)},
    "scored exactly, rsage": {"evaluate.fanout": "all", "model.name": "rsage"},
    "scored exactly, rgat": {"evaluate.fanout": "all", "model.name": "rgat", "model.norm": "layer"},
    "scored exactly, hgt": {"evaluate.fanout": "all", "model.name": "hgt", "model.norm": "layer"},
    "sharded, partial, hgt": {
        "run.topology": "sharded", "strategy.remote": "partial", "sampling.sampler": "labor-0", "model.name": "hgt",
    },
    "sharded, partial, rgat": {
        "run.topology": "sharded", "strategy.remote": "partial", "sampling.sampler": "labor-0", "model.name": "rgat",
    },
    "weighted, partial, rgat": {
        "model.name": "rgat", "sampling.sampler": "weighted", "strategy.remote": "partial",
        "model.options.attention_dropout": 0.2,
    },
    "weighted, partial, simple-hgn": {
        "model.name": "simple-hgn", "sampling.sampler": "weighted", "strategy.remote": "partial",
        "evaluate.fanout": "all",
    },
    "scored exactly, sharded": {"evaluate.fanout": "all", "run.topology": "sharded"},
    "scored by layers": {"evaluate.fanout": "2,2", "model.name": "rsage"},
    "all neighbours": {"sampling.fanout": "all,all", "train.batch_size": "full"},
}  # fmt: skip


@pytest.fixture(scope="module")
def parts(world, folder):
    """One graph in one part, and in four."""
    graph = typed_graph(SCHEMA, edges=260, seed=3)
    places = [folder / "one", folder / "four"]
    if world.rank == 0:
        assignment = np.random.default_rng(1).integers(0, 4, graph.vertices)
        write_dataset(places[0], graph, np.zeros(graph.vertices, int), 1, method="test", figures={}, seed=0)
        write_dataset(places[1], graph, assignment, 4, method="test", figures={}, seed=0)
    world.comm.barrier()
    return places


def values(run):
    """Losses by iteration, and scores."""
    return [(each["losses"], each.get("details")) for each in epochs(run)]


@pytest.mark.parametrize("name", CASES)
def test_any_ranks_train_as_one_process(name, world, folder, parts):
    if name not in here(list(CASES)) and not SOAKS:
        pytest.skip("another number of ranks takes it")
    base, place = Config.from_values({**COMMON, **CASES[name]}), folder / str(list(CASES).index(name))
    run = train(base.replaced({"data": str(parts[1]), "run.folder": f"{place}-all"}), world.comm)
    expected = None
    if world.rank == 0:
        alone = {"data": str(parts[0]), "run.folder": f"{place}-one", "run.topology": "auto", "run.device": "cpu"}
        alone |= {"strategy.name": "leap", "strategy.remote": "auto", "strategy.time_steps": "auto"}
        expected = train(base.replaced(alone), MPI.COMM_SELF)
        for got, wanted in zip(epochs(run), epochs(expected), strict=True):
            np.testing.assert_allclose(got["losses"], wanted["losses"], rtol=1e-9)
            assert got["accuracy"] == wanted["accuracy"]
    world.comm.barrier()


def test_the_same_ranks_end_with_the_same_bits(world, folder, parts, monkeypatch):
    if world.size not in (1, 3) and not SOAKS:
        pytest.skip("1 rank and 3 tell what 2 and 4 would")
    base = Config.from_values({"data": str(parts[1]), **COMMON, "train.epochs": 3, "train.batch_size": 6})
    whole = train(base.replaced({"run.folder": str(folder / "whole")}), world.comm)
    config = base.replaced({"run.folder": str(folder / "stopped"), "run.replay": str(whole.path)})
    stopped(config, world.comm, monkeypatch, world.size - 1)
    run = train(config, world.comm)
    for which in ("final", "best"):
        wanted = {key: array.tobytes() for key, array in whole.weights(which).items()}
        assert {key: array.tobytes() for key, array in run.weights(which).items()} == wanted


@pytest.mark.parametrize(
    "name", ["leap, raw", "sharded, raw", "sharded, partial, labor", "sharded, partial, hgt", "sharded, partial, rgat"]
)
def test_rows_and_bytes_are_predicted(name, world, folder, parts):
    if world.size not in ((2, 3) if SOAKS else (3,)):
        pytest.skip("3 ranks tell what others would")  # of few roots, of which a forecast sees some
    place = str(folder / f"foretold {name}")
    values = {**COMMON, **CASES[name], "train.epochs": 1, "evaluate.every": 0, "strategy.time_steps": "1"}
    config = Config.from_values({**values, "data": str(parts[1]), "run.folder": place})
    run = train(config, world.comm)
    if world.rank == 0:
        figures = compare(config, str(run.path))
        for kind, figure in (figures["rows"] | figures["bytes"]).items():
            assert figure["ratio"] == pytest.approx(1, abs=0.15), (kind, figure)
    world.comm.barrier()


def test_predictions_are_those_of_one_process(world, folder, parts):
    if world.size not in (1, 4) and not SOAKS:
        pytest.skip("1 rank and 4 tell what 2 and 3 would")
    base = Config.from_values({**COMMON, "sampling.relation_fanout": ("*:cites:*=0,3",)})
    run = train(base.replaced({"data": str(parts[1]), "run.folder": str(folder / "predicts")}), world.comm)
    wanted = [("logits", {"what": "logits"}), ("authors", {"what": "embeddings", "layer": 1, "type": "author"})]
    wanted.append(("test", {"what": "classes", "vertices": "test"}))
    for name, request in wanted:
        run.write_predictions(parts[1], folder / f"{name}-all.npy", comm=world.comm, **request)
        if world.rank == 0:
            run.write_predictions(parts[0], folder / f"{name}-one.npy", comm=MPI.COMM_SELF, **request)
            found, expected = (np.load(folder / f"{name}-{which}.npy") for which in ("all", "one"))
            np.testing.assert_allclose(found, expected, rtol=1e-9)
            assert len(found) == {"logits": 120, "authors": 90}.get(name, len(found)) > 0
        world.comm.barrier()
    with pytest.raises(ConfigError, match="--type city: no layer computes outputs of it; use --type paper"):
        run.write_predictions(parts[1], folder / "city.npy", comm=world.comm, type="city")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sampling.sampler": "ladies"}, "ladies does not draw by relation"),
        ({"strategy.name": "p3"}, "p3 does not train typed graphs"),
        ({"sampling.relation_fanout": "*:likes:*=3"}, "fits no relation of the dataset"),
    ],
)
def test_what_does_not_go_with_types_is_refused(changes, part, world, folder, parts):
    config = Config.from_values({"data": str(parts[1]), **COMMON, "run.folder": str(folder / "refused"), **changes})
    with pytest.raises(ConfigError) as caught:
        train(config, world.comm)
    assert part in str(caught.value)
