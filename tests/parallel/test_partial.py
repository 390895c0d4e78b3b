"""`partial` for what is not linear in rows: the steps of a single process; for maxima fewer bytes than projected."""

import dataclasses

import pytest

from tests.support.equality import Case, Runner, here

PLAIN = Case(
    strategy="leap", partition="metis", parts=4, batch="even", fanout="10,10", model="sage max", dropout="none",
    shape="plain", labels="single", threads=1, remote="partial", merge="paper", rows="copied", cache="none", prefetch=0,

)  # fmt: skip
OTHERS = [
    dataclasses.replace(PLAIN, strategy="pull", partition="hash", fanout="4,3,2", dropout="everywhere", threads=2),
    dataclasses.replace(
        PLAIN, strategy="leap, ring", partition="uneven", parts=7, fanout="all,all", shape="layer norm"
    ),
    dataclasses.replace(PLAIN, strategy="pull", batch="three roots", labels="multi", prefetch=1),
    dataclasses.replace(PLAIN, model="film", strategy="pull", fanout="10,10", dropout="everywhere", prefetch=1),
    dataclasses.replace(PLAIN, model="film mean", strategy="leap, ring", partition="uneven", parts=7, fanout="4,3,2"),
    dataclasses.replace(
        PLAIN, model="film mean", labels="single, sparse features", batch="three roots", fanout="all,all", threads=2
    ),
    dataclasses.replace(PLAIN, model="film", fanout="3,2", labels="single, edges with data"),
    dataclasses.replace(PLAIN, model="gat", dropout="everywhere", fanout="4,3,2", prefetch=1),
    dataclasses.replace(PLAIN, model="gat", strategy="leap, ring", partition="uneven", parts=7, threads=2),
    dataclasses.replace(PLAIN, model="gatv2", strategy="pull", partition="hash", dropout="everywhere"),
    dataclasses.replace(PLAIN, model="gatv2", strategy="pull", batch="three roots", fanout="all,all", labels="multi"),
]
CASES = [PLAIN, *here(OTHERS)]


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.model}-{each.strategy}-{each.fanout}")
def test_the_steps_are_those_of_a_single_process(case, same_steps):
    same_steps(case)


def test_fewer_bytes_cross_ranks_than_with_projected_rows(base, world):
    sent = {}
    for remote in ("partial", "projected"):
        outcomes = Runner(base, world).run(dataclasses.replace(PLAIN, remote=remote))
        sent[remote] = world.comm.allreduce(sum(each.counted["activations"] for each in outcomes))
    assert sent["partial"] < sent["projected"] or world.size == 1
