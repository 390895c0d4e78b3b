"""Mini-batches computed layer by layer, each row at home, take the steps of a single process, bytes counted."""

import os
from zlib import crc32

import pytest
from mpi4py import MPI

import leapmpi
from leapmpi.config.schema import Config
from tests.support import datasets
from tests.support.equality import DEEP, MODEL, OWN, Case, Runner, check, here, references
from tests.support.pairs import pair, pairwise

SOAKS = "LEAPMPI_SOAK" in os.environ
# What else layers sum up makes no difference to owners: tests/soak takes all models.
MODELS = (*MODEL, *DEEP) if SOAKS else (*MODEL, "deepgcn mean", "deepgcn softmax", "film", "gin", "gatv2")
FIXED = {
    "strategy": "owner", "parts": 4, "merge": "paper", "rows": "copied", "cache": "none",
    "threads": 1,
}  # fmt: skip
OPTIONS = {
    "model": MODELS,
    "batch": ("even", "one root in the last batch", "three roots"),
    "sampler": ("node-wise", "labor-0", "with-replacement", "ladies,layer-size=20"),
    "dropout": ("none", "everywhere"),
    "shape": ("plain", "both"),
    "partition": ("metis", "uneven", "lopsided"),
    "labels": ("single", "single, edges with data", "single, sparse features", "multi"),
    "fanout": ("3,2", "4,3,2", "10,10"),
    "prefetch": (0, 1, 2),
    "remote": (OWN, "raw", "projected", "partial"),
}
# What cannot feed a layer of the model, and weights of edges that a maximum cannot use.
EXCLUDED = {
    *(pair("remote", kind, "shape", "both") for kind in ("projected", "partial")),
    *(pair("remote", "partial", "model", model) for model in MODELS if model not in ("gcn", "sage", "gin")),
    pair("model", "gin", "labels", "single, edges with data"),
    *(
        pair("sampler", sampler, "model", model)
        for sampler in ("labor-0", "ladies,layer-size=20", "with-replacement")
        for model in ("sage max", "deepgcn max")
    ),
}
PAIRS = sorted(pairwise(OPTIONS, EXCLUDED), key=lambda values: crc32(repr(values).encode()))
# Each number of ranks takes a quarter of them, in no order.
CASES = [Case(**FIXED, **values) for values in (PAIRS if SOAKS else PAIRS[MPI.COMM_WORLD.size - 1 :: 4])]
DATA = datasets.Variant("single", "uneven", 4)


@pytest.fixture(scope="module")
def base(world, folder):
    datasets.build(world.comm, folder, {DATA, *(each.dataset for case in CASES for each in (case, case.alone()))})
    return folder


@pytest.fixture(scope="module")
def alone(world, base):
    return references(CASES, base, world.comm)


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.model}-{each.sampler}-{each.remote}")
def test_the_steps_are_those_of_a_single_process(case, base, alone, world):
    check(case, Runner(base, world).run(case), alone[case.alone()], world.comm)


@pytest.mark.parametrize("epochs", here([1, 2]))
def test_a_run_that_goes_on_has_the_bits_of_one_in_one_go(epochs, base, world):
    settings = {
        "data": str(DATA.folder(base)), "strategy.name": "owner", "model.name": "deepgcn", "model.hidden": 8,
        "sampling.fanout": "3,3,3", "train.batch_size": 48, "run.threads": 1, "run.log_level": "error",
        "run.device": "cpu", "train.epochs": 3,
    }  # fmt: skip
    whole, parts = (base / f"owner-{epochs}-{name}" for name in ("whole", "parts"))
    done = leapmpi.train(Config.from_values({**settings, "run.folder": str(whole)}), world.comm)
    leapmpi.train(Config.from_values({**settings, "run.folder": str(parts), "train.epochs": epochs}), world.comm)
    run = leapmpi.train(Config.from_values({**settings, "run.folder": str(parts)}), world.comm)
    assert run.summary["parameters_digest"] == done.summary["parameters_digest"]
