"""The same command chooses the same and ends with the same bits, whatever the clocks say."""

import pytest
from mpi4py import MPI

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.engine import tuning
from leapmpi.engine.machine import key_of, machine_rates
from leapmpi.errors import ConfigError
from leapmpi.plan.machine_rates import MachineRates, keep_rates, rates_file
from leapmpi.session.setup import choose_device
from tests.support import datasets

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size in (2, 4), reason="1 rank and 3 tell what 2 and 4 would")
DATA = datasets.Variant("single", "hash", 4)


@pytest.fixture
def cache(world, folder, request, monkeypatch):
    """A user's cache of this case alone."""
    path = folder / f"cache-{request.node.name}"
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    world.comm.barrier()
    return path


@pytest.fixture
def train(world, folder, cache, request):
    """A function that trains two epochs with all choices left open, in a folder of the given name."""
    base = folder / f"same-{request.node.name}"
    if world.rank == 0:
        base.mkdir()
    world.comm.barrier()
    datasets.build(world.comm, base, {DATA})

    def run(name, **changes):
        values = {"data": str(DATA.folder(base)), "train.epochs": 2, "train.batch_size": 64, "model.hidden": 8,
                  "sampling.fanout": "3,3", "run.folder": str(base / name),
                  "run.threads": 1, "run.log_level": "error", "run.device": "cpu"}  # fmt: skip
        return leapmpi.train(Config.from_values(values | changes), world.comm)

    return run


def keep(world, rates):
    """Keep `rates` for jobs like this one. Collective."""
    world.on_root(lambda: keep_rates(key_of(world, choose_device("cpu")), rates, {}))


def chosen(run):
    return next(record["remote"]["chosen"] for record in run.metrics() if record["event"] == "banner")


def test_no_clock_is_asked_unless_tune_is_given(train, world, monkeypatch):
    def fails(*arguments):
        raise AssertionError("a clock was asked")

    monkeypatch.setattr(tuning, "measured_rates", fails)
    first, second = train("first"), train("second")
    assert first.summary["parameters_digest"] == second.summary["parameters_digest"]
    decisions = [{r["about"]: (r["value"], r["evidence"]) for r in run.metrics() if r["event"] == "decision"}
                 for run in (first, second)]  # fmt: skip
    assert decisions[0] == decisions[1]
    if world.size > 1:  # One rank has nothing to choose.
        assert decisions[0]["rates"][1] == {"machine": MachineRates().to_values()}


def test_kept_rates_decide_what_crosses_ranks(train, world):
    # Hidden rows of two numbers travel in fewer bytes than rows of twelve.
    few = {"model.hidden": 2, "sampling.fanout": "10,10"}
    # A link that costs nothing hides raw rows behind computing; a slow one makes every byte count.
    keep(world, MachineRates(multiply_add=1e-6, byte=1e-15, collective=10.0))
    free = chosen(train("free", **few))
    keep(world, MachineRates(multiply_add=1e-15, step=1e-15, byte=1.0, collective=1e-15))
    slow = chosen(train("slow", **few))
    if world.size > 1:
        assert free == "raw"
        assert slow in ("partial", "mixed")


def test_auto_decides_by_rates_and_a_run_keeps_its_strategy(train, world):
    # A link that is slow beyond all: the strategy that moves least bytes to the busiest rank.
    left = {"model.hidden": 2}
    keep(world, MachineRates(multiply_add=1e-15, step=1e-15, byte=1.0, collective=1e-15))
    run = train("auto", **left, **{"train.epochs": 1})
    choice = run.summary["strategy_choice"]
    if world.size == 1:
        assert (choice, run.summary["strategy"]) == (None, "leap")
        return
    least = min(choice["forecasts"], key=lambda name: choice["forecasts"][name]["seconds"])
    assert run.summary["strategy"] == run.config.strategy.name == choice["strategy"] in ("leap", least)

    # Other rates, more epochs: the run goes on as it began; so does one that replays it.
    keep(world, MachineRates(multiply_add=1.0))
    longer = train("auto", **left, **{"train.epochs": 2})
    assert longer.summary["strategy_choice"] == choice
    replayed = train("replayed", **left, **{"train.epochs": 2, "run.replay": str(run.path)})
    assert replayed.summary["strategy_choice"] == choice
    assert replayed.summary["parameters_digest"] == longer.summary["parameters_digest"]


def test_a_damaged_file_of_rates_stops_all_ranks_with_one_sentence(world, cache):
    if world.rank == 0:
        (cache / "leapmpi").mkdir(parents=True)
        rates_file().write_text("[")
    world.comm.barrier()
    with pytest.raises(ConfigError, match="measure again"):
        machine_rates(world, choose_device("cpu"))
