"""How many ranks that prepare keep ranks that compute busy."""

import pytest

from leapmpi.plan.role_balance import RoleBalance


def test_as_many_ranks_as_preparing_takes_longer_than_computing():
    balance = RoleBalance(prepare=0.9, send=0.05, compute=0.2)
    assert balance.ranks_needed == 5
    assert [balance.seconds(count) for count in (1, 3, 4, 5, 9)] == pytest.approx([0.9, 0.3, 0.225, 0.2, 0.2])
    assert balance.busy(3) == pytest.approx(2 / 3)
    assert balance.busy(5) == 1.0
    assert balance.sentence(3, 1).endswith(
        "5 that prepare keep the rank that computes busy, and with 3 it is busy 67% of the time"
    )
    assert balance.sentence(5, 2).endswith(
        "keep the 2 ranks that compute busy, and with 5 they are busy 100% of the time"
    )


def test_one_rank_is_enough_where_preparing_is_quick():
    balance = RoleBalance(prepare=0.01, send=0.0, compute=0.2)
    assert balance.ranks_needed == 1
    assert "1 that prepare keeps the rank" in balance.sentence(1, 1)


def test_a_link_that_is_too_slow_is_told():
    balance = RoleBalance(prepare=0.9, send=0.3, compute=0.2)
    assert balance.ranks_needed is None
    assert balance.seconds(100) == 0.3
    assert "arrive too slowly to keep the rank that computes busy" in balance.sentence(4, 1)
