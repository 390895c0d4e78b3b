"""`sums`: the steps of a single process, each destination named once for all time steps, nothing sent back."""

import dataclasses

import pytest

from tests.support.equality import Case, Runner, here

PLAIN = Case(
    strategy="leap", partition="metis", parts=4, batch="even", fanout="10,10", model="sage", dropout="none",
    shape="plain", labels="single", threads=1, remote="sums", merge="paper", rows="copied", cache="none", prefetch=0,

)  # fmt: skip
OTHERS = [
    dataclasses.replace(PLAIN, strategy="pull", model="gin", dropout="everywhere", prefetch=2, threads=2),
    dataclasses.replace(PLAIN, model="gcn", strategy="leap, ring", labels="single, edges with data", fanout="4,3,2"),
    dataclasses.replace(PLAIN, model="gcn", shape="residual", labels="multi", partition="uneven", parts=7, prefetch=1),
    dataclasses.replace(
        PLAIN, labels="targets, half-precision features", sampler="weighted", fanout="3,2", strategy="leap, ring",
    ),
    dataclasses.replace(PLAIN, topology="sharded", strategy="leap, ring", model="gcn", dropout="everywhere", threads=2),
    dataclasses.replace(
        PLAIN, topology="sharded", strategy="pull", labels="single, edges with data", batch="three roots",
    ),
]  # fmt: skip
CASES = [PLAIN, *here(OTHERS)]


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.model}-{each.strategy}-{each.topology}-{each.labels}")
def test_the_steps_are_those_of_a_single_process(case, same_steps):
    same_steps(case)


def test_nothing_that_depends_on_weights_crosses_ranks_but_gradients_of_the_model(base, world):
    first, *_ = Runner(base, world).run(PLAIN)
    assert first.counted["activations"] == first.counted["row gradients"] == 0
    assert first.counted["features"] > 0 or world.size == 1
