"""Rule R2 on real ranks: every pair of options takes the steps of a single process, and counts what it moves."""

import pytest

from tests.parallel import datasets
from tests.parallel.equality import OPTIONS, Case, Runner, check, references
from tests.parallel.pairs import pairwise

CASES = [Case(**values) for values in pairwise(OPTIONS)]


@pytest.fixture(scope="module")
def base(world, folder):
    needed = {case.dataset for case in CASES} | {datasets.whole(labels) for labels in datasets.LABELS}
    datasets.build(world.comm, folder, needed)
    return folder


@pytest.fixture(scope="module")
def alone(world, base):
    return references(CASES, base, world.comm)


def test_every_pair_of_options_is_covered():
    for a in OPTIONS:
        for b in OPTIONS:
            met = {(getattr(case, a), getattr(case, b)) for case in CASES}
            assert a == b or len(met) == len(OPTIONS[a]) * len(OPTIONS[b])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.strategy}-{case.partition}-{case.model}-{case.batch}")
def test_the_steps_are_those_of_a_single_process(case, base, alone, world):
    check(case, Runner(base, world).run(case), alone[case.alone()], world.comm)
