"""Stopped in mid-epoch by a signal to one rank and started again, a run ends with the same bits; on other ranks or
parts, with the same losses."""

import os
import signal

import numpy as np
import pytest
from mpi4py import MPI

from leapmpi import Config, load_run, train
from leapmpi.comm.flow_control import wait_for
from leapmpi.engine.engine import Engine
from leapmpi.errors import Interrupted
from leapmpi.runs.file_names import model_folder
from leapmpi.training.ensemble_models import EnsembleModels
from tests.support import datasets
from tests.support.equality import here

COMMON = {"train.epochs": 3, "train.batch_size": 36, "model.hidden": 8, "sampling.fanout": "5,5",
          "run.threads": 1, "run.log_level": "error", "run.device": "cpu"}  # fmt: skip
# Each option at least once, in pairs that differ in much: strategy and steps, model, optimizer, what crosses ranks.
CASES = {
    "leap, sage, adam": {"strategy.remote": "auto", "train.lr_schedule": "cosine", "train.warmup_epochs": 0.5},
    "leap on a ring, gat, sgd": {
        "strategy.time_steps": "N", "strategy.remote": "projected", "model.name": "gat",
        "model.options.attention_dropout": 0.2,
        "train.optimizer": "sgd", "train.momentum": 0.9, "train.lr": 0.05,
    },
    "pull, sage, sgd": {
        "strategy.name": "pull", "strategy.remote": "partial", "train.optimizer": "sgd", "train.momentum": 0.9,
        "model.input_dropout": 0.3, "train.lr": 0.05,
    },
    "p3, gcn, adamw": {
        "strategy.name": "p3", "model.name": "gcn", "train.optimizer": "adamw", "train.weight_decay": 0.01,
        "train.clip_norm": 0.5, "model.norm": "batch",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def parts(world, folder):
    """Two partitions of one graph."""
    wanted = [datasets.Variant("single", partition, 4) for partition in ("uneven", "hash")]
    datasets.build(world.comm, folder, set(wanted))
    return [each.folder(folder) for each in wanted]


def stopped(config, comm, monkeypatch, rank):
    """Train on `comm` until `rank` is sent a signal in the second epoch. Collective over `comm`."""

    def interrupted(genuine):
        def step(trained, work):
            if (work.schedule.epoch, work.schedule.iteration) == (1, 1) and trained.ctx.communicator.rank == rank:
                os.kill(os.getpid(), signal.SIGUSR2)
            return genuine(trained, work)

        return step

    with monkeypatch.context() as patch:
        for kind, name in ((Engine, "forward_backward"), (EnsembleModels, "step")):
            patch.setattr(kind, name, interrupted(getattr(kind, name)))
        with pytest.raises(
            Interrupted, match=f"SIGUSR2 on rank {rank}: training stopped in epoch 2, after iteration 3"
        ):
            train(config, comm)


def epochs(run):
    return [record for record in run.metrics() if record["event"] == "epoch"]


@pytest.mark.parametrize("name", CASES)
def test_the_same_ranks_end_with_the_same_bits(name, world, folder, parts, monkeypatch):
    if name not in here(list(CASES)):
        pytest.skip("another number of ranks takes it")
    base = Config.from_values({"data": str(parts[0]), **COMMON, **CASES[name]})
    place = folder / str(list(CASES).index(name))
    whole = train(base.replaced({"run.folder": f"{place}-whole"}), world.comm)
    # What clocks have a say in is decided as in the first run.
    config = base.replaced({"run.folder": f"{place}-stopped", "run.replay": str(whole.path)})
    stopped(config, world.comm, monkeypatch, world.size - 1)
    run = train(config, world.comm)
    for which in ("final", "best"):
        wanted = {key: array.tobytes() for key, array in whole.weights(which).items()}
        assert {key: array.tobytes() for key, array in run.weights(which).items()} == wanted
    for got, wanted in zip(epochs(run), epochs(whole), strict=True):
        assert all(got[key] == wanted[key] for key in ("losses", "loss", "accuracy", "bytes", "rows", "remote", "lr"))
        assert got.get("details") == wanted.get("details")
        check_by_rank(wanted, world.size)
    assert run.summary["best"] == whole.summary["best"]
    # Nobody knows to whom an earlier start sent.
    assert ["sent" in each.get("by_rank", {}) for each in epochs(run)] == [world.size > 1, False, world.size > 1]


def check_by_rank(record, size):
    """Figures by rank add up to those of all ranks."""
    if size == 1:
        assert "by_rank" not in record
        return
    found = record["by_rank"]
    assert (found["ranks"], found["each"], len(found["memory"])) == (size, 1, size)
    sent = np.array(found["sent"])
    assert sent.shape == (size, size)
    assert not np.diag(sent).any()
    assert sent.sum() == sum(record["bytes"].values())
    assert sum(map(sum, found["rows"].values())) == sum(record["rows"].values())
    assert sum(found["core_seconds"]) == pytest.approx(record["core_seconds"], abs=1e-5)
    for phase, seconds in found["phases"].items():
        assert np.mean(seconds) == pytest.approx(record["phases"][phase]["mean"], abs=1e-6)


VARIED = {
    "strategy.vary": ("train.optimizer=adam,sgd", "model.hidden=8,4"),
    "train.momentum": 0.9, "train.lr_schedule": "cosine",
}  # fmt: skip


def test_models_that_differ_end_with_the_same_bits(world, folder, parts, monkeypatch):
    if world.size not in (1, 3):
        pytest.skip("1 rank and 3 tell what 2 and 4 would")
    base = Config.from_values({"data": str(parts[0]), **COMMON, **VARIED})
    whole = train(base.replaced({"run.folder": str(folder / "models-whole")}), world.comm)
    config = base.replaced({"run.folder": str(folder / "models-stopped")})
    stopped(config, world.comm, monkeypatch, world.size - 1)
    run = train(config, world.comm)
    assert run.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert [each["models"] for each in epochs(run)] == [each["models"] for each in epochs(whole)]
    for number in range(4):
        ours, theirs = (load_run(model_folder(each.path, number)) for each in (run, whole))
        for which in ("final", "best"):
            wanted = {key: array.tobytes() for key, array in theirs.weights(which).items()}
            assert {key: array.tobytes() for key, array in ours.weights(which).items()} == wanted
        for got, wanted in zip(epochs(ours), epochs(theirs), strict=True):
            assert all(got[key] == wanted[key] for key in ("losses", "loss", "accuracy", "bytes", "rows", "lr"))
            assert got.keys() == wanted.keys()
        assert ours.summary["best"] == theirs.summary["best"]


def test_other_ranks_and_parts_go_on_with_the_same_losses(world, folder, parts, monkeypatch):
    if world.size not in (2, 4):
        pytest.skip("2 and 4 ranks tell what 3 would")
    name = {2: "leap on a ring, gat, sgd", 4: "p3, gcn, adamw"}[world.size]
    values = {"data": str(parts[0]), **COMMON, **CASES[name], "train.dtype": "float64"}
    config = Config.from_values({**values, "run.folder": str(folder / "moved")})
    stopped(config, world.comm, monkeypatch, 0)
    if world.rank == 0:
        run = train(config.replaced({"data": str(parts[1])}), MPI.COMM_SELF)
        alone = train(config.replaced({"run.folder": config.run.folder + "-alone"}), MPI.COMM_SELF)
        got, wanted = (np.concatenate([record["losses"] for record in epochs(each)]) for each in (run, alone))
        np.testing.assert_allclose(got, wanted, rtol=1e-9)
        assert [each["epoch"] for each in epochs(run)] == [1, 2, 3]
        assert load_run(run.path).summary["ranks"] == 1
    wait_for(world.comm.Ibarrier)


GOES_ON = {
    "pull, sage, adam": {"strategy.name": "pull", "strategy.remote": "raw"},
    "p3, gcn, sgd": {"strategy.name": "p3", "model.name": "gcn", "train.optimizer": "sgd", "train.momentum": 0.9},
    "models that differ": {"strategy.vary": ("train.lr=0.003,0.01",)},
}


@pytest.mark.parametrize("name", GOES_ON)
def test_a_finished_run_that_goes_on_ends_with_the_bits_of_one_go(name, world, folder, parts):
    if world.size != 3:
        pytest.skip("3 ranks tell what others would; one rank is tried in tests/job")
    base = Config.from_values({"data": str(parts[0]), **COMMON, **GOES_ON[name], "train.epochs": 4})
    place = folder / f"on-{list(GOES_ON).index(name)}"
    whole = train(base.replaced({"run.folder": f"{place}-whole"}), world.comm)
    config = base.replaced({"run.folder": str(place), "train.epochs": 2})
    assert train(config, world.comm).summary["best"]["epoch"] <= 2
    run = train(config.replaced({"train.epochs": 4}), world.comm)
    assert run.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert [each["losses"] for each in epochs(run)] == [each["losses"] for each in epochs(whole)]
    assert run.summary["best"] == whole.summary["best"]
