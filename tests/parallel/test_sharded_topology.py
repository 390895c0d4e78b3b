"""With --topology sharded each rank holds its own vertices' lists; blocks and steps are those of a whole topology."""

import dataclasses

import numpy as np
import pytest
import torch

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.phase_timers import PhaseTimers
from tests.parallel.test_restart import stopped
from tests.support import datasets, own_samplers
from tests.support.equality import OWN, Case, Runner, check, here, references

PLAIN, DATA = "single", "single, edges with data"
COMMON = {
    "partition": "uneven", "parts": 4, "batch": "even", "fanout": "4,3", "dropout": "everywhere", "shape": "plain",
    "labels": PLAIN, "threads": 1, "merge": "paper", "rows": "copied", "cache": "none", "prefetch": 0,
    "sampler": "node-wise", "topology": "sharded",
}  # fmt: skip
FULL = {"batch": "larger than the training set", "fanout": "all,all"}
CASES = [
    Case(**COMMON | changes | {"strategy": strategy, "remote": remote, "model": model})
    for strategy, remote, model, changes in [
        ("leap", "raw", "gcn", {"prefetch": 2}),
        (
            "pull",
            "raw",
            "sage",
            {"partition": "hash", "batch": "one root in the last batch", "dropout": "none"},
        ),
        ("leap, ring", "projected", "gat", {"sampler": "labor-0,fixed-size=no"}),
        ("pull", "partial", "gcn", {"sampler": "weighted"}),
        ("pull", "raw", "sage", {"cache": "kept", "prefetch": 2}),
        ("leap, ring", "raw", "gcn", {"cache": "kept", "sampler": "labor-0", "labels": DATA}),
        ("owner", "raw", "gcn", {"cache": "kept", "partition": "hash", "sampler": "ladies,layer-size=30"}),
        ("pull", "partial", "gat", {"sampler": "weighted", "fanout": "4,3,2"}),
        ("leap, ring", "partial", "gatv2", {"sampler": "labor-0", "partition": "hash"}),
        ("leap, ring of all steps but one", "partial", "sage max", {"partition": "lopsided", "dropout": "hidden"}),
        ("pull", "raw", "gat", {"labels": DATA, "fanout": "4,3,2", "dropout": "hidden"}),
        ("leap", "partial", "sage", {"labels": DATA, "sampler": "weighted,weights=edge"}),
        ("leap, two steps", "raw", "gcn", {"sampler": "with-replacement", "labels": DATA}),
        ("leap", "partial", "sage", {"sampler": "temporal,window=25", "labels": DATA}),
        ("owner", "partial", "sage", {"labels": DATA, "sampler": "labor-0", "prefetch": 2}),
        ("owner", "projected", "gat", {"fanout": "4,3,2", "dropout": "none"}),
        ("owner", "raw", "gcn", {"sampler": "random-walk,walks=5"}),
        ("owner", "partial", "gcn", {"sampler": "ladies,layer-size=30", "labels": DATA}),
        ("leap, ring", "projected", "sage", {"sampler": "labor-i,rounds=2", "prefetch": 2}),
        ("pull", "raw", "gcn", {"sampler": "ladies,layer-size=40", "partition": "lopsided"}),
        ("leap, ring", "partial", "sage", {"sampler": "random-walk,walks=5,steps=3"}),
        ("depcomm", "partial", "gcn", {"labels": DATA, **FULL}),
        ("depcomm", "projected", "gat", FULL),
        ("hybrid", OWN, "sage", {"labels": DATA, **FULL, "fanout": "all,all,all"}),
        ("depcache", OWN, "gcn", {**FULL, "partition": "lopsided"}),
        ("hybrid", OWN, "gcn", FULL),
    ]
]
SAMPLERS = [
    ("node-wise", PLAIN, "4,3,2"),
    ("labor-0,fixed-size=no,same-in-layers=yes", DATA, "all,3"),
    ("weighted,weights=edge", DATA, "4,3"),
    (f"{own_samplers.__file__}:Sparing", PLAIN, "4,3"),
]
"""All of them, on any number of ranks, are compared in tests/sampling/sharded."""


@pytest.fixture(scope="module")
def base(world, folder):
    wanted = {case.dataset for case in CASES} | {case.alone().dataset for case in CASES}
    datasets.build(world.comm, folder, wanted | {datasets.Variant(PLAIN, "hash", 4)})
    return folder


def loaded(base, world, topology, labels=PLAIN, partition="uneven", **changes):
    """The dataset in place on this rank. Collective."""
    # Models that read what edges carry, and names of all sources.
    values = {"data": str(datasets.Variant(labels, partition, 4).folder(base)), "run.topology": topology,
              **({"model.name": "gat", "model.options.attention_dropout": 0.2}
                if labels == DATA else {"model.name": "gcn"})}  # fmt: skip
    config = Config.from_values(values | changes)
    return load(config, open_for_training(config), world, torch.device("cpu"), PhaseTimers())


@pytest.mark.parametrize(("sampler", "labels", "fanout"), here(SAMPLERS))
def test_blocks_are_equal_to_the_bit(sampler, labels, fanout, base, world):
    name, *options = sampler.split(",")
    given = {"sampling.sampler": name, "sampling.options": options, "sampling.fanout": fanout}
    whole, sharded = (loaded(base, world, kind, labels, **given) for kind in ("node", "sharded"))
    assert isinstance(sharded.topology, TopologyShard)
    rng = np.random.default_rng(world.rank)
    for iteration, count in enumerate((40, 0 if world.rank == world.size - 1 else 7, 1, 400)):
        roots, key = rng.permutation(datasets.VERTICES)[:count], DrawKey(TRAIN, 5, 1, iteration)
        ours, theirs = (each.ctx.sampler.sample(key, roots) for each in (sharded, whole))
        for got, wanted in zip(ours, theirs, strict=True):
            assert vars(got).keys() == vars(wanted).keys()
            for field, array in vars(wanted).items():
                if isinstance(array, np.ndarray):
                    assert (field, getattr(got, field).dtype) == (field, array.dtype)
                    np.testing.assert_array_equal(getattr(got, field), array, field)
                else:
                    assert getattr(got, field) == array, field
    vertices = rng.integers(0, datasets.VERTICES, 30)
    got, wanted = (each.ctx.sampler.neighbours(key, 1, vertices) for each in (sharded, whole))
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def alone(world, base):
    return references(here(CASES), base, world.comm)


@pytest.mark.parametrize(
    "case", here(CASES), ids=lambda case: f"{case.sampler}-{case.strategy}-{case.remote}-{case.model}"
)
def test_steps_are_those_of_a_copy_per_node_to_the_bit_and_of_a_single_process(case, base, alone, world):
    got = Runner(base, world).run(case)
    check(case, got, alone[case.alone()], world.comm)
    wanted = Runner(base, world).run(dataclasses.replace(case, topology="node"))
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.loss == theirs.loss
        for name, gradient in theirs.gradients.items():
            np.testing.assert_array_equal(ours.gradients[name], gradient, name)


@pytest.fixture(scope="module")
def config(base):
    values = {"data": str(datasets.Variant(PLAIN, "uneven", 4).folder(base)), "train.epochs": 3,
              "train.batch_size": 36, "model.hidden": 8, "sampling.fanout": "5,5", "run.threads": 1,
              "run.log_level": "error", "run.device": "cpu", "run.topology": "sharded"}  # fmt: skip
    return Config.from_values(values)


def test_a_run_that_was_stopped_ends_with_the_bits_of_a_copy_per_node(config, folder, world, monkeypatch):
    if world.size not in (1, 2):
        pytest.skip("1 rank and 2 tell what 3 and 4 would")
    # All choices are left open, and all scores taken.
    whole = leapmpi.train(
        config.replaced({"run.folder": str(folder / "whole"), "run.topology": "node", "strategy.name": "leap"}),
        world.comm,
    )
    config = config.replaced({"run.folder": str(folder / "stopped")})
    stopped(config, world.comm, monkeypatch, world.size - 1)
    run = leapmpi.train(config, world.comm)
    assert run.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert run.summary["best"] == whole.summary["best"]


@pytest.mark.parametrize("model", here(["gat", "gatv2"]))
def test_exact_scores_of_a_model_with_attention_dropout_are_those_of_a_copy_per_node(model, config, folder, world):
    attention = config.replaced({"model.name": model, "model.heads": 2, "model.attention_dropout": 0.4,
                                 "evaluate.fanout": "all", "train.epochs": 1, "train.dtype": "float64"})  # fmt: skip
    shards, copies = (
        leapmpi.train(
            attention.replaced({"run.folder": str(folder / f"exact-{model}-{kind}"), "run.topology": kind}), world.comm
        ).summary
        for kind in ("sharded", "node")
    )
    assert shards["parameters_digest"] == copies["parameters_digest"]
    assert shards["best"] == copies["best"]


def test_models_that_differ_are_trained_alike(config, folder, world):
    if world.size not in (1, 3):
        pytest.skip("1 rank and 3 tell what 2 and 4 would")
    varied = config.replaced({"strategy.vary": ("model.hidden=8,4",),
                              "train.epochs": 1})  # fmt: skip
    digests = {
        leapmpi.train(
            varied.replaced({"run.folder": str(folder / f"models-{kind}"), "run.topology": kind}), world.comm
        ).summary["parameters_digest"]
        for kind in ("node", "sharded")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"sampling.sampler": "fast-gcn"},
            "choose labor-0, labor-i, ladies, node-wise, random-walk, temporal, weighted or with-replacement",
        ),
        ({"sampling.sampler": f"{own_samplers.__file__}:Together"}, "with-replacement, or leave collective out"),
        ({"strategy.name": "p3"}, "choose leap or pull, or use --topology node"),
        (
            {
                "strategy.name": "hybrid",
                "train.batch_size": datasets.TRAINING,
                "sampling.fanout": "all,all",
                "strategy.balance_parts": "measured",
            },
            "--balance-parts counts the lists of all parts",
        ),
        (
            {"sampling.sampler": "temporal", "sampling.options": ("root-time=times.npy",)},
            "root-time=FILE gives times to all vertices",
        ),
    ],
)
def test_what_needs_a_whole_topology_is_refused_on_all_ranks(changes, sentence, config, base, world):
    given = config.replaced(changes)
    with pytest.raises(ConfigError, match=sentence):
        load(given, open_for_training(given), world, torch.device("cpu"), PhaseTimers())


def test_auto_keeps_a_copy_per_node_where_there_is_room(config, world):
    given = config.replaced({"run.topology": "auto"})
    found = load(given, open_for_training(given), world, torch.device("cpu"), PhaseTimers())
    assert not isinstance(found.topology, TopologyShard)


def test_auto_shards_where_a_copy_does_not_fit_in_half_of_the_memory_of_a_node(config, world, monkeypatch):
    given = config.replaced({"run.topology": "auto"})
    several = dataclasses.replace(world, nodes=2)
    # One node is short of memory: all ranks shard.
    free = 30_000 if world.rank == 0 else 1 << 40
    monkeypatch.setattr("leapmpi.session.topology_kind.available_bytes", lambda: free)
    found = load(given, open_for_training(given), several, torch.device("cpu"), PhaseTimers())
    assert isinstance(found.topology, TopologyShard)
    kept = load(
        given.replaced({"sampling.sampler": "fast-gcn"}), open_for_training(given), several, torch.device("cpu"),
        PhaseTimers(),
    )  # fmt: skip
    assert not isinstance(kept.topology, TopologyShard)
