"""The frontier in a hash table numbers vertices as a dict does, whatever their ids, in any number of calls."""

import numpy as np
import pytest

from leapmpi.sampling.hash_frontier import HashFrontier

pytestmark = pytest.mark.compiles


def check(frontier: HashFrontier, calls: list[np.ndarray]) -> None:
    known: dict[int, int] = {}
    for vertices in calls:
        wanted = [known.setdefault(vertex, len(known)) for vertex in vertices.tolist()]
        positions = frontier.add(vertices)
        assert positions.dtype == np.int32
        assert positions.tolist() == wanted
        assert frontier.src.tolist() == list(known)
        assert frontier.count == len(known)


@pytest.mark.parametrize("largest", [3, 700, 2**31 - 1, 2**40])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_positions_are_those_of_a_dict(largest, dtype):
    rng, frontier = np.random.default_rng(largest), HashFrontier()
    for sizes in ((10, 0, 3000), (1,), (40_000, 500, 40_000), (0,), (700, 700)):
        check(frontier, [rng.integers(0, min(largest, np.iinfo(dtype).max), size).astype(dtype) for size in sizes])
        frontier.clear()


def test_ids_that_hash_to_one_slot_are_told_apart():
    # Multiples of a high power of two agree in all bits but the highest: long runs of probes.
    check(HashFrontier(), [np.arange(3000, dtype=np.int64) << 44, np.arange(3000, dtype=np.int64)])


def test_a_cleared_frontier_knows_nothing_of_the_sample_before():
    frontier = HashFrontier()
    frontier.add(np.arange(5000))
    frontier.clear()
    assert (frontier.count, len(frontier.src)) == (0, 0)
    assert frontier.add(np.array([4999, 7, 4999])).tolist() == [0, 1, 0]


def test_memory_follows_the_sample_and_not_the_largest_id():
    frontier = HashFrontier()
    frontier.add(np.array([2**50, 5]))
    assert sum(value.nbytes for value in vars(frontier).values() if isinstance(value, np.ndarray)) < 1 << 16
