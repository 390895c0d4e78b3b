"""Runs whose parts are reassigned between epochs: losses of any assignment, bits of a restart and of a replay."""

import numpy as np
import pytest

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.full_batch.part_assignment import PartAssignment
from tests.support import datasets
from tests.support.stopped_epoch import stopped_in

DATA = datasets.Variant("single", "uneven", 4)
SETTINGS = {
    "strategy.name": "hybrid", "strategy.balance_parts": "measured", "model.name": "gat", "model.hidden": 8,
    "train.epochs": 5, "train.batch_size": "full", "sampling.fanout": "all,all",
    "train.dtype": "float64", "run.threads": 1, "run.log_level": "error", "run.device": "cpu",
}  # fmt: skip
DEALS = {2: {1: [0, 1, 4], 3: [0, 3, 4]}, 3: {1: [0, 1, 2, 4], 3: [0, 2, 3, 4]}}


@pytest.fixture
def train(world, folder, monkeypatch):
    """A function that trains in a new folder; parts are reassigned after the second and the fourth epoch."""
    base = folder / "part-assignment"
    if world.rank == 0:
        base.mkdir(exist_ok=True)
    world.comm.barrier()
    datasets.build(world.comm, base, {DATA})

    def better(assignment, engine, left):
        deal = DEALS[world.size].get(SETTINGS["train.epochs"] - left - 1)
        return None if deal is None else (np.array(deal), {})

    monkeypatch.setattr(PartAssignment, "_better", better)

    def run(name, **changes):
        values = {"data": str(DATA.folder(base)), **SETTINGS, "run.folder": str(base / name), **changes}
        return leapmpi.train(Config.from_values(values), world.comm)

    return run


def epochs(run):
    return [record for record in run.metrics() if record["event"] == "epoch"]


def test_losses_are_those_without_and_restart_and_replay_have_its_bits(train, world, monkeypatch):
    if world.size not in DEALS:
        return
    still, whole = train("still", **{"strategy.balance_parts": "off"}), train("whole")
    np.testing.assert_allclose(*([each["losses"] for each in epochs(run)] for run in (whole, still)), rtol=1e-9)
    scores = [[each["accuracy"] for each in epochs(run)] for run in (whole, still)]
    assert scores[0] == scores[1]
    made = [(each["epoch"], each["value"]) for each in whole.metrics() if each.get("about") == "parts"]
    assert made == [(epoch + 2, deal) for epoch, deal in DEALS[world.size].items()]

    # Stopped in an epoch after the first deal.
    with stopped_in(2, world, monkeypatch):
        train("stopped")
    resumed = train("stopped")

    # A replay decides nothing.
    monkeypatch.setattr(PartAssignment, "_better", None)
    replayed = train("again", **{"run.replay": str(whole.path)})
    for run in (resumed, replayed):
        assert run.summary["parameters_digest"] == whole.summary["parameters_digest"]
        assert [each["bytes"] for each in epochs(run)] == [each["bytes"] for each in epochs(whole)]
