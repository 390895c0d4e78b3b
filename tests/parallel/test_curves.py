"""Whole runs: the loss of every batch over three epochs, and the scores, are those of a single process."""

import numpy as np
import pytest
from mpi4py import MPI

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.job.run_evaluation import evaluate
from tests.support import datasets
from tests.support.equality import here

BATCH = 36
FIRST = 20  # iterations over which float32 must agree

CURVES = {
    "pull, gcn, adamw": {
        "strategy.name": "pull", "model.name": "gcn", "model.input_dropout": 0.2, "sampling.fanout": "5,5",
        "train.optimizer": "adamw", "train.weight_decay": 0.01, "train.lr_schedule": "cosine",
        "train.warmup_epochs": 0.5, "train.clip_norm": 0.5,
    },
    "leap on a ring, gat, adam": {
        "strategy.time_steps": "N", "model.name": "gat", "model.options.attention_dropout": 0.2, "model.norm": "layer",
        "model.residual": True, "sampling.fanout": "3,2", "evaluate.fanout": "all,all",
    },
    "leap, sage, sgd": {
        "model.name": "sage", "sampling.fanout": "10,10", "train.optimizer": "sgd", "train.momentum": 0.9,
        "train.lr": 0.05, "evaluate.metric": "roc-auc",
    },
    "p3, gat, adam": {
        "strategy.name": "p3", "model.name": "gat", "model.input_dropout": 0.2, "model.options.attention_dropout": 0.2,
        "sampling.fanout": "5,5", "train.weight_decay": 0.01, "train.clip_norm": 0.5,
    },
    "leap, gin, batch norm, adam": {"strategy.time_steps": "1", "model.name": "gin", "model.norm": "batch"},
    "pull, deepgcn, batch norm, adam": {
        "strategy.name": "pull", "model.name": "deepgcn", "model.norm": "batch", "model.mlp_layers": 2,
        "model.aggregate": "mean", "sampling.fanout": "4,3",
    },
}  # fmt: skip
LABELS = {"leap, sage, sgd": "multi"}
PARTITION = {
    "pull, gcn, adamw": "metis",
    "leap on a ring, gat, adam": "uneven",
    "leap, sage, sgd": "hash",
    "p3, gat, adam": "uneven",
    "leap, gin, batch norm, adam": "hash",
    "pull, deepgcn, batch norm, adam": "uneven",
}


@pytest.fixture(scope="module", params=here(list(CURVES)))
def runs(request, world, folder):
    """The float64 and float32 runs of one curve on all ranks, and the float64 run alone."""
    name = request.param
    labels = LABELS.get(name, "single")
    cut, uncut = datasets.Variant(labels, PARTITION[name], 4), datasets.whole(labels)
    base = folder / str(list(CURVES).index(name))
    if world.rank == 0:
        base.mkdir()
    world.comm.barrier()
    datasets.build(world.comm, base, {cut, uncut})

    def train(kind, data, dtype, comm):
        values = {"data": str(data.folder(base)), "train.epochs": 3, "train.batch_size": BATCH, "model.hidden": 8,
                  "train.lr": 0.01, "train.dtype": dtype, "run.folder": str(base / kind),
                  "run.threads": 1, "run.log_level": "error", "run.device": "cpu"}  # fmt: skip
        heads = {"model.options.heads": 2} if "gat" in CURVES[name]["model.name"] else {}
        return leapmpi.train(Config.from_values(values | heads | CURVES[name]), comm)

    if world.rank == world.size - 1:
        train("alone", uncut, "float64", MPI.COMM_SELF)
    together = train("together", cut, "float64", world.comm)
    single = train("single precision", cut, "float32", world.comm)
    world.comm.barrier()
    return leapmpi.load_run(base / "alone"), together, single


def losses(run):
    return np.concatenate([record["losses"] for record in run.metrics() if record["event"] == "epoch"])


def test_losses_in_double_precision_agree_to_1e_9(runs):
    alone, together, _ = (losses(run) for run in runs)
    assert len(alone) == 3 * -(-datasets.TRAINING // BATCH)
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    assert alone[-1] < alone[0]


def test_parameters_and_running_statistics_agree(runs):
    alone, together, _ = (run.weights("final") for run in runs)
    assert together.keys() == alone.keys()
    for name, wanted in alone.items():
        np.testing.assert_allclose(together[name], wanted, rtol=1e-7, atol=1e-8, err_msg=name)


def test_the_first_losses_in_single_precision_agree_to_1e_4(runs):
    alone, _, single = (losses(run) for run in runs)
    assert len(single) > FIRST
    np.testing.assert_allclose(single[:FIRST], alone[:FIRST], rtol=1e-4)


def test_epoch_losses_and_scores_agree(runs):
    alone, together, _ = (run.summary for run in runs)
    assert together["graph_uuid"] == alone["graph_uuid"]
    assert together["best"]["epoch"] == alone["best"]["epoch"]
    for got, wanted in zip(together["epochs"], alone["epochs"], strict=True):
        assert got["loss"] == pytest.approx(wanted["loss"], rel=1e-9)
        assert got["accuracy"] == pytest.approx(wanted["accuracy"], rel=1e-9)


def test_alone_everything_is_read_here_and_nothing_is_sent(runs, world):
    alone, together, _ = (run.summary for run in runs)
    assert all(epoch["rows"]["remote"] == 0 for epoch in alone["epochs"])
    assert sum(sum(epoch["bytes"].values()) for epoch in alone["epochs"]) == 0
    if world.size == 1:
        assert [epoch["rows"] for epoch in together["epochs"]] == [epoch["rows"] for epoch in alone["epochs"]]


def test_saved_weights_score_as_they_did_in_the_run(runs, world):
    _, together, _ = runs
    (scored,) = evaluate([(together.config, together)], "best", world.comm)
    best = together.summary["best"]
    assert {key: scored[key] for key in best} == best
