"""Runs whose decisions come from clocks: recorded, and repeated bit for bit by --replay, whatever they are."""

import json
import shutil

import numpy as np
import pytest
from mpi4py import MPI

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError
from tests.support import datasets

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size in (2, 4), reason="1 rank and 3 tell what 2 and 4 would")
DATA, OTHER = (datasets.Variant("single", partition, 4) for partition in ("lopsided", "hash"))


@pytest.fixture(scope="module")
def train(world, folder):
    """A function that trains three epochs in a folder of the given name; clocks decide time steps."""
    base = folder / "replay"
    if world.rank == 0:
        base.mkdir()
    world.comm.barrier()
    datasets.build(world.comm, base, {DATA, OTHER})

    def run(name, **changes):
        values = {"data": str(DATA.folder(base)), "train.epochs": 3, "train.batch_size": 24, "model.hidden": 8,
                  "sampling.fanout": "5,5", "strategy.time_steps": "measured",
                  "run.folder": str(base / name), "run.threads": 1, "run.log_level": "error",
                  "run.device": "cpu"}  # fmt: skip
        return leapmpi.train(Config.from_values(values | changes), world.comm)

    run.other = str(OTHER.folder(base))
    return run


def decisions(run):
    names = ("about", "epoch", "iteration", "value", "evidence")
    return [{name: r[name] for name in names} for r in run.metrics() if r["event"] == "decision"]


@pytest.fixture(scope="module")
def decided(train, world):
    """A run, and the same with other decisions put into its records: it changes its time steps in mid-epoch."""
    run = train("first")
    made = decisions(run)
    # All ranks have read the records before they are changed.
    world.comm.barrier()
    if world.rank == 0:
        lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        lines = [line for line in lines if (line.get("about"), line.get("iteration", 0) > 0) != ("time_steps", True)]
        end = len(lines) - 1
        # Records without a schema count epochs from 0.
        for epoch, iteration, steps in ((0, 4, world.size), (1, 0, 1), (2, 3, min(2, world.size))):
            lines.insert(end, {"event": "decision", "about": "time_steps", "epoch": epoch, "iteration": iteration,
                               "value": steps, "evidence": {}})  # fmt: skip
        (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    world.comm.barrier()
    return run, made


def test_the_records_say_what_was_decided_and_why(decided, world):
    _, made = decided
    if world.size == 1:
        assert made == []  # One rank has nothing to choose.
        return
    rates = [each for each in made if each["about"] == "rates"]
    assert len(rates) == 1
    assert all(value >= 0 for value in rates[0]["value"].values())
    steps = [each for each in made if each["about"] == "time_steps"]
    assert (steps[0]["epoch"], steps[0]["iteration"]) == (1, 0)
    assert set(steps[0]["evidence"]["predicted"]) == set(steps[0]["evidence"]["memory"])
    # 11 iterations an epoch are enough to settle; every change says what was measured.
    assert steps[-1]["evidence"]["settled"]
    assert set(steps[-1]["evidence"]["measured"]) <= set(steps[-1]["evidence"]["predicted"])


def test_a_replay_makes_the_same_decisions_and_the_same_bits(decided, train, world):
    run, _ = decided
    once = train("once", **{"run.replay": str(run.path)})
    again = train("again", **{"run.replay": str(once.path)})
    assert once.summary["parameters_digest"] == again.summary["parameters_digest"]
    if world.size > 1:
        changed = [(e["epoch"], e["iteration"], e["value"]) for e in decisions(once) if e["about"] == "time_steps"]
        assert changed[-3:] == [(1, 4, world.size), (2, 0, 1), (3, 3, min(2, world.size))]
        assert [each["time_steps"] for each in once.summary["epochs"]] == [world.size, 1, min(2, world.size)]
    assert decisions(once) == decisions(again)
    losses = [np.concatenate([e["losses"] for e in each.metrics() if e["event"] == "epoch"]) for each in (run, once)]
    np.testing.assert_allclose(losses[1][:20], losses[0][:20], rtol=1e-4)


def test_a_replay_of_other_settings_is_refused(decided, train):
    run, _ = decided
    with pytest.raises(ConfigError, match=r"that run had train\.batch_size = 24, this one has 25"):
        train("other", **{"run.replay": str(run.path), "train.batch_size": 25})


def test_another_dataset_is_refused(decided, train):
    run, _ = decided
    with pytest.raises(ConfigError, match="was trained on another dataset"):
        train("elsewhere", data=train.other, **{"run.replay": str(run.path)})


def test_a_run_that_went_on_on_other_ranks_is_refused(decided, train, world):
    run, _ = decided
    moved = run.path.parent / "moved"
    world.comm.barrier()
    if world.rank == 0:
        shutil.copytree(run.path, moved)
        lines = (moved / "metrics.jsonl").read_text().splitlines()
        banner = json.loads(next(line for line in lines if json.loads(line)["event"] == "banner"))
        banner["ranks"] = [*banner["ranks"], banner["ranks"][0]]
        (moved / "metrics.jsonl").write_text("\n".join([*lines, json.dumps(banner)]) + "\n")
    world.comm.barrier()
    with pytest.raises(ConfigError, match=f"went on on {world.size + 1} ranks"):
        train("of moved", **{"run.replay": str(moved)})
