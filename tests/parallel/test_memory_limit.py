"""What iterations may take, on any number of ranks: kept, or refused in the same words."""

import pytest

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.errors import ResourceError
from tests.support import datasets

DATA = datasets.Variant("single", "metis", 4)


@pytest.fixture(scope="module")
def base(world, folder):
    datasets.build(world.comm, folder, {DATA})
    return folder


def train(world, base, name, **values):
    values = {"data": str(DATA.folder(base)), "train.epochs": 1, "train.batch_size": 64, "model.hidden": 8,
              "run.folder": str(base / name), "run.log_level": "error", "run.device": "cpu", "run.threads": 1,
              "strategy.remote": "raw"} | values  # fmt: skip
    world.comm.barrier()
    return leapmpi.train(Config.from_values(values), world.comm)


@pytest.mark.parametrize(("prefetch", "advice"), [
    ("2", "use --prefetch 0, which prepares no iterations ahead, lower --batch-size or --fanout, or raise the limit"),
    ("0", "lower --batch-size or --fanout, or raise the limit"),
])  # fmt: skip
def test_a_limit_that_nothing_fits_is_refused(prefetch, advice, world, base):
    steps = "1 time step" if world.size == 1 else f"{world.size} time steps"
    sentence = rf"takes about \d+\.\d KiB on a rank even in {steps}, more than --memory-limit 1k; {advice}$"
    with pytest.raises(ResourceError, match=sentence) as caught:
        train(world, base, "refused", **{"strategy.memory_limit": "1k", "strategy.prefetch": prefetch})
    assert caught.value.exit_code == 6
    assert not (base / "refused").exists()


def test_a_limit_that_all_fits_changes_nothing(world, base):
    run = train(world, base, "fits", **{"strategy.memory_limit": "1G"})
    decided = [record["value"] for record in run.metrics() if record.get("about") == "time_steps"]
    assert decided[:1] == ([] if world.size == 1 else [1])
