"""The choice of what to compute again, by hand on a small graph: exact prices, the growing set, and the room."""

import numpy as np
import pytest

from leapmpi.full_batch.dependency_choice import Prices, choose_cached, choose_kept, choose_sums

pytestmark = pytest.mark.compiles

# In-neighbours: 0 reads 3, 4; 1 reads 4, 5; 2 reads nothing; 3, 4 and 5 are leaves.
INDPTR = np.array([0, 2, 4, 4, 4, 4, 4])
INDICES = np.array([3, 4, 4, 5], np.int32)
PRICES = Prices(row=1.0, edge=0.5, new_input=2.0, row_bytes=100, edge_bytes=10, input_bytes=1000)
NOBODY = np.zeros(6, bool)


def chosen(sent, room=np.inf, candidates=(0, 1, 2), present=NOBODY, prices=PRICES, exchange=0.0):
    candidates = np.array(candidates, np.int64)
    lists = [INDICES[INDPTR[each] : INDPTR[each + 1]] for each in candidates]
    indptr = np.cumsum([0, *map(len, lists)])
    return choose_cached(
        indptr, np.concatenate([INDICES[:0], *lists]), candidates, present, sent, prices, room, exchange
    )


def test_what_is_cheaper_to_compute_than_to_send_is_cached():
    # Alone: vertex 2 costs 1 + 2 for itself; 0 and 1 cost 1 + 2 x 0.5 + 3 x 2 = 8.
    assert chosen(3.0).cached.tolist() == [False, False, False]
    assert chosen(3.1).cached.tolist() == [False, False, True]
    assert chosen(3.1).seconds.tolist() == [3.1, 3.1, 3.0]


def test_what_one_brings_is_free_for_the_next():
    found = chosen(8.1)
    assert found.cached.all()
    # Vertex 1 comes after 0, which has brought vertex 4.
    assert found.seconds.tolist() == [8.0, 6.0, 3.0]
    assert found.taken == (100 + 20 + 3000) + (100 + 20 + 2000) + (100 + 1000)


def test_a_vertex_that_costs_too_much_alone_is_taken_when_others_have_paid():
    # 6 < 7 < 8: vertex 1 is worth it only after 0 would have been taken, which is not.
    assert chosen(7.0).cached.tolist() == [False, False, True]
    present = NOBODY.copy()
    present[4] = True
    assert chosen(6.1, present=present).cached.tolist() == [True, True, True]
    assert not present[0]


def test_all_is_computed_where_the_exchange_that_this_spares_costs_more():
    # All three take 17 seconds; sent they take 9.
    assert chosen(3.0, exchange=8.0).cached.tolist() == [False, False, False]
    found = chosen(3.0, exchange=8.1)
    assert found.cached.all()
    assert found.seconds.sum() == 17
    # What does not fit leaves the exchange, and the choice as it was.
    assert chosen(3.0, 6339, exchange=100.0).cached.tolist() == [False, False, False]


def test_inputs_that_are_here_cost_nothing():
    assert chosen(2.1, present=np.ones(6, bool)).cached.all()
    assert chosen(2.0, present=np.ones(6, bool)).cached.tolist() == [False, False, True]


@pytest.mark.parametrize("room", [0, 1099, 1100, 1100 + 3119, 1100 + 3120, 1100 + 3120 + 2120])
def test_the_room_holds(room):
    found = chosen(100.0, room)
    assert found.taken <= room
    assert found.cached.tolist() == [room >= 4220, room >= 6340, room >= 1100]


def test_ties_are_decided_by_order_and_nothing_is_chosen_of_nothing():
    assert chosen(100.0, 3120 + 1100, candidates=(1, 0)).cached.tolist() == [True, False]
    assert not len(chosen(1.0, candidates=np.empty(0, np.int64)).cached)


def test_a_vertex_that_is_its_own_neighbour_is_counted_once():
    indptr, indices = np.array([0, 2]), np.array([0, 1], np.int32)
    found = choose_cached(indptr, indices, np.array([0]), np.zeros(2, bool), 100.0, PRICES, np.inf)
    assert found.seconds.tolist() == [1 + 2 * 0.5 + 2 * 2]


@pytest.mark.parametrize(("room", "kept"), [(np.inf, 3), (30, 3), (29, 2), (0, 0), (-5, 0)])
def test_as_many_features_are_kept_as_fit(room, kept):
    found = choose_kept(3, 7.0, 10, room)
    assert found.cached.tolist() == [number < kept for number in range(3)]
    assert found.seconds.sum() == 7.0 * (3 - kept)
    assert found.taken == 10 * kept


def test_sums_are_taken_of_owners_where_they_are_fewer():
    seconds, owner = np.array([1.0, 1.0, 1.0, 5.0]), np.array([1, 1, 1, 2])
    assert choose_sums(seconds, owner, np.array([0, 2, 4, 0]), 1.0).tolist() == [False, True, True, False]
    assert choose_sums(seconds, owner, np.array([0, 3, 5, 0]), 1.0).tolist() == [False, False, False, False]
