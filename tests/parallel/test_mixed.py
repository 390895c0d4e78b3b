"""`mixed`: the steps of a single process, with fewer items than shares alone or rows alone."""

import dataclasses

import numpy as np
import pytest
import torch

from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.selection import exchange_mode
from leapmpi.session.setup import load, open_for_training
from leapmpi.system.phase_timers import PhaseTimers
from tests.support.equality import Case, Runner, here

PLAIN = Case(
    strategy="leap", partition="metis", parts=4, batch="even", fanout="10,10", model="gcn", dropout="none",
    shape="plain", labels="single", threads=1, remote="mixed", merge="paper", rows="in place", cache="none", prefetch=0,
)  # fmt: skip
OTHERS = [
    dataclasses.replace(PLAIN, model="sage", strategy="pull", partition="hash", fanout="all,all", dropout="hidden"),
    dataclasses.replace(PLAIN, model="sage", dropout="everywhere", rows="copied", strategy="leap, ring", prefetch=1),
    dataclasses.replace(PLAIN, model="gin", rows="copied", partition="uneven", parts=7, fanout="4,3,2", threads=2),
    dataclasses.replace(PLAIN, labels="single, sparse features", rows="copied", batch="three roots", strategy="pull"),
    dataclasses.replace(PLAIN, model="gcn", labels="single, edges with data", sampler="weighted,weights=edge"),
    dataclasses.replace(PLAIN, model="sage", topology="sharded", shape="layer norm"),
    dataclasses.replace(PLAIN, model="sage", labels="targets, half-precision features", sampler="with-replacement"),
]
CASES = [PLAIN, *here(OTHERS)]


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.model}-{each.strategy}-{each.labels}-{each.topology}")
def test_the_steps_are_those_of_a_single_process(case, same_steps):
    same_steps(case)


def test_evaluation_gives_the_outputs_of_raw_rows(base, world):
    config = PLAIN.config(base, world.size)
    dataset = open_for_training(config)
    found = load(config, dataset, world, torch.device("cpu"), PhaseTimers())
    scoring, outputs = Evaluator(config, found).scoring, {}
    for name in ("raw", "mixed"):
        outcomes = scoring.outcomes_by("val", [exchange_mode(name, scoring.outputs.ctx)])[0]
        outputs[name] = np.concatenate([rows for rows, _ in outcomes])
    np.testing.assert_allclose(outputs["mixed"], outputs["raw"], rtol=0, atol=1e-12)


def test_fewer_bytes_cross_ranks_than_with_shares_alone_or_rows_alone(base, world):
    sent = {}
    for remote in ("mixed", "partial", "projected"):
        outcomes = Runner(base, world).run(dataclasses.replace(PLAIN, remote=remote, rows="copied"))
        sent[remote] = world.comm.allreduce(sum(each.counted["activations"] for each in outcomes))
    assert sent["mixed"] < min(sent["partial"], sent["projected"]) or world.size == 1
