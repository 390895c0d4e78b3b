"""Training on a stand-in for a GPU that refuses what a GPU refuses: samplers, models, strategies, remote forms."""

import pytest

import leapmpi
from leapmpi.config.schema import Config
from tests.support.kinds import KINDS
from tests.support.stand_in_gpu import present

pytestmark = pytest.mark.compiles

MODELS = ("sage", "gcn", "gat", "gatv2", "gin", "film", "deepgcn")
OF_MODELS = {
    "gcn": {"model.norm": "batch"},
    "gin": {"model.dropout": 0.5, "model.input_dropout": 0.3},
    "film": {"train.dtype": "bfloat16"},
}
"""What some of the models are trained with."""
FULL = {"train.batch_size": "full", "sampling.fanout": "all,all"}
SAMPLERS = [kind for kind in KINDS if not kind.startswith("temporal")]
"""Whose edges need no times."""
CASES = {
    **{
        f"{kind}; {model}": {
            "sampling.sampler": kind.partition(",")[0],
            "sampling.options": list(KINDS[kind]),
            "model.name": model,
            **OF_MODELS.get(model, {}),
        }
        for kind, model in zip(SAMPLERS, MODELS * 3, strict=False)
    },
    "sage max": {"model.options.aggregate": "max"},
    **{name: {"strategy.name": name} for name in ("pull", "naive", "p3", "owner")},
    **{name: FULL | {"strategy.name": name} for name in ("depcomm", "depcache", "hybrid")},
    **{form: {"strategy.remote": form, "strategy.time_steps": "N"} for form in ("raw", "sums", "projected", "partial")},
    "mixed, prefetched, with a cache": {"strategy.remote": "mixed", "strategy.prefetch": 2, "strategy.cache": 0.001},
}


FEW = ("node-wise; sage", "labor-0; gat", "owner", "hybrid", "mixed, prefetched, with a cache")
"""Cases that every change must pass; tests/soak goes through all."""


def digests(data, folder, name):
    """Return the digests of the parameters that the case trains on the CPU's stand-in and on the present one."""

    def run(device):
        values = {"data": str(data), "train.epochs": 1, "train.batch_size": 40, "model.hidden": 8,
                  "sampling.fanout": "4,3", "strategy.name": "leap", "run.threads": 1, "evaluate.every": 0,
                  "run.folder": str(folder / device), "run.log_level": "error", "run.device": device}  # fmt: skip
        return leapmpi.train(Config.from_values(values | CASES[name])).summary["parameters_digest"]

    expected = run("stand-in")
    with present():
        return run("cuda"), expected


@pytest.mark.parametrize("name", FEW)
def test_a_gpu_takes_the_steps_of_the_cpu_that_stands_in(name, small_data, tmp_path):
    found, expected = digests(small_data, tmp_path, name)
    assert found == expected
