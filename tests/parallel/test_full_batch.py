"""Full batches: every strategy, and any split of remote inputs into cached and communicated ones, takes the steps of a
single process, bytes counted; whole runs have its losses and go on to the bit."""

import os
from zlib import crc32

import numpy as np
import pytest
from mpi4py import MPI

import leapmpi
from leapmpi.comm.flow_control import wait_for
from leapmpi.config.schema import Config
from leapmpi.exchange.layer_graphs import Split
from leapmpi.full_batch.full_batch_graphs import FullBatchGraphs
from leapmpi.full_batch.full_batch_placement import FullBatchPlacement
from tests.support import datasets
from tests.support.equality import DEEP, FULL_BATCH, MODEL, OWN, Case, Runner, check, here, references
from tests.support.pairs import pair, pairwise
from tests.support.stopped_epoch import stopped_in

ANY_SPLIT, BY_OWNER = "any split", "owner by owner"
SOAKS = "LEAPMPI_SOAK" in os.environ
# What else layers sum up makes no difference to layer graphs and steps: tests/soak takes all models.
MODELS = (*MODEL, *DEEP) if SOAKS else (*MODEL, "deepgcn", "deepgcn softmax", "film", "gin", "gatv2")
FIXED = {
    "batch": "larger than the training set", "parts": 4, "merge": "paper", "rows": "copied", "cache": "none",
    "threads": 1,
}  # fmt: skip
OPTIONS = {
    "model": MODELS,
    "strategy": (*FULL_BATCH, ANY_SPLIT),
    "dropout": ("none", "everywhere"),
    "shape": ("plain", "both"),
    "partition": ("metis", "uneven", "lopsided"),
    "labels": ("single", "single, edges with data", "single, sparse features", "multi"),
    "fanout": ("all,all", "all,all,all", "all"),
    "prefetch": (0, 1),
    "remote": (OWN, "projected", "partial"),
    "held": ("all rows", BY_OWNER),
}
# What cannot feed a layer of the model.
EXCLUDED = {
    *(pair("remote", kind, "shape", "both") for kind in ("projected", "partial")),
    *(pair("remote", "partial", "model", model) for model in MODELS if model not in ("gcn", "sage", "gin")),
    *(pair("remote", kind, "strategy", "depcache") for kind in ("projected", "partial")),
    *(pair("remote", kind, "strategy", "hybrid") for kind in ("projected", "partial")),
    pair("model", "gin", "labels", "single, edges with data"),
    *(pair("held", BY_OWNER, "model", model) for model in MODELS if model not in ("gcn", "sage", "gat")),
    *(pair("held", BY_OWNER, "strategy", name) for name in ("depcache", ANY_SPLIT)),
    *(pair("held", BY_OWNER, "remote", kind) for kind in ("projected", "partial")),
    pair("held", BY_OWNER, "fanout", "all"),
}
PAIRS = sorted(pairwise(OPTIONS, EXCLUDED), key=lambda values: crc32(repr(values).encode()))
# Each number of ranks takes a quarter of them, in no order.
CASES = PAIRS if SOAKS else PAIRS[MPI.COMM_WORLD.size - 1 :: 4]
# Everything that is sent again or drawn by edge, one owner at a time; self parts of rows that prefixes change.
FURTHER = {2: [("gat", BY_OWNER), ("sage", "all rows")], 3: [("gat", BY_OWNER)], 4: [("gcn", BY_OWNER)]}
CASES = CASES + [
    {
        "model": model, "strategy": "depcomm", "dropout": "everywhere", "shape": "both", "partition": "uneven",
        "labels": "single", "fanout": "all,all,all", "prefetch": 0, "remote": OWN, "held": held,
    }
    for model, held in FURTHER.get(MPI.COMM_WORLD.size, ())
]  # fmt: skip


def case_of(values: dict) -> Case:
    """The case, of the strategy of which splits are a variation."""
    strategy = "depcomm" if values["strategy"] == ANY_SPLIT else values["strategy"]
    return Case(**{name: each for name, each in values.items() if name != "held"} | {"strategy": strategy}, **FIXED)


def split(placement, inputs, kind):
    """Another half of the remote inputs is cached for each layer and rank; the others come from some owners as rows."""
    rank, layer = placement.ctx.rank, inputs.layer
    owners = np.arange(placement.ctx.ranks)
    as_rows = placement.ctx.model.layers[layer].rows.pair is not None
    return Split((inputs.block.src * 7 + layer * 3 + rank * 5) % 11 < 5, (owners + rank + layer) % 3 > 0, as_rows)


def holds_all(engine, minibatch):
    return not minibatch.graph.by_owner


@pytest.fixture(scope="module")
def base(world, folder):
    cases = [case_of(values) for values in CASES]
    datasets.build(world.comm, folder, {DATA, *(each.dataset for case in cases for each in (case, case.alone()))})
    return folder


@pytest.fixture(scope="module")
def alone(world, base):
    return references([case_of(values) for values in CASES], base, world.comm)


@pytest.mark.parametrize("values", CASES, ids=lambda each: f"{each['model']}-{each['strategy']}-{each['remote']}")
def test_the_steps_are_those_of_a_single_process(values, base, alone, world, monkeypatch):
    case = case_of(values)
    if values["strategy"] == ANY_SPLIT:
        monkeypatch.setattr(FullBatchPlacement, "split", split)
    if values["held"] == BY_OWNER and world.size > 1:
        # Whatever holds more is too much.
        monkeypatch.setattr(FullBatchGraphs, "_too_much", lambda *given: ("too much" * holds_all(*given), 0))
    check(case, Runner(base, world).run(case), alone[case.alone()], world.comm)


RUNS = {
    "depcomm, gat": {"strategy.name": "depcomm", "model.name": "gat", "model.options.attention_dropout": 0.2},
    "hybrid, sage": {"strategy.name": "hybrid", "strategy.memory_limit": "3M", "model.input_dropout": 0.2},
    "depcache, gcn": {"strategy.name": "depcache", "model.name": "gcn", "train.optimizer": "sgd", "train.lr": 0.05},
}
COMMON = {
    "train.epochs": 4, "train.batch_size": "full", "sampling.fanout": "all,all", "model.hidden": 8,
    "train.dtype": "float64", "run.threads": 1, "run.log_level": "error", "run.device": "cpu",
}  # fmt: skip
DATA = datasets.Variant("single", "uneven", 4)


@pytest.mark.parametrize("name", here(list(RUNS)))
def test_a_stopped_run_ends_with_the_losses_of_one_process_and_its_own_bits(name, world, base, monkeypatch):
    place = base / f"run-{list(RUNS).index(name)}"
    started = Config.from_values({"data": str(DATA.folder(base)), **COMMON, **RUNS[name]})
    whole = leapmpi.train(started.replaced({"run.folder": f"{place}-whole"}), world.comm)
    config = started.replaced({"run.folder": f"{place}-stopped"})
    with stopped_in(1, world, monkeypatch):
        leapmpi.train(config, world.comm)
    run = leapmpi.train(config, world.comm)
    assert run.summary["restarts"] == 1
    assert run.summary["parameters_digest"] == whole.summary["parameters_digest"]
    same = ("losses", "accuracy", "bytes", "rows")
    assert [[each[key] for key in same] for each in epochs(run)] == [
        [each[key] for key in same] for each in epochs(whole)
    ]
    assert run.config.train.batch_size == datasets.TRAINING

    # One process, by mini-batches of all vertices.
    if world.rank == 0:
        alone = started.replaced({"strategy.name": "pull", "strategy.memory_limit": "", "run.folder": f"{place}-alone"})
        wanted = [each["losses"] for each in epochs(leapmpi.train(alone, MPI.COMM_SELF))]
        np.testing.assert_allclose([each["losses"] for each in epochs(whole)], wanted, rtol=1e-9)
    wait_for(world.comm.Ibarrier)


def epochs(run):
    return [record for record in run.metrics() if record["event"] == "epoch"]
