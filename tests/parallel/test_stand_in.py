"""Training the GPU's way on the CPU: the losses of the CPU's way, the same bits twice, in any place of rows."""

import pytest

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.features.shards import row_placement
from tests.support import datasets

EVEN = datasets.Variant("single", "metis", 4)


@pytest.fixture(scope="module")
def train(world, folder):
    """A function that trains on the device of that name; the summary."""
    datasets.build(world.comm, folder, {EVEN})

    def run(name, device, **changes):
        values = {"data": str(EVEN.folder(folder)), "train.epochs": 1, "train.batch_size": 24, "model.hidden": 8,
                  "sampling.fanout": "4,3", "strategy.remote": "raw", "strategy.name": "leap", "run.threads": 1,
                  "run.folder": str(folder / name), "run.log_level": "error", "run.device": device}  # fmt: skip
        world.comm.barrier()
        found = leapmpi.train(Config.from_values(values | changes), world.comm)
        world.comm.barrier()
        return found.summary

    return run


def test_places_of_rows_do_not_matter(train, monkeypatch):
    host = train("host", "cpu")["epochs"][0]["loss"]
    digests = set()
    for place in (row_placement.DEVICE, row_placement.PINNED, row_placement.STAGED):
        monkeypatch.setattr(row_placement, "choose_placement", lambda *_, place=place: place)
        found = train(place, "stand-in", **{"run.deterministic": True})
        assert found["epochs"][0]["loss"] == pytest.approx(host, rel=1e-5)
        digests.add(found["parameters_digest"])
    assert len(digests) == 1
    fewer = train("fewer", "stand-in", **{"train.autocast": "bfloat16"})
    assert fewer["epochs"][0]["loss"] == pytest.approx(host, rel=0.05)
    assert fewer["parameters_digest"] not in digests
