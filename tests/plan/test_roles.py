"""Which ranks prepare and which compute, and who has which share."""

import pytest

from leapmpi.errors import ConfigError
from leapmpi.plan.roles import Roles


@pytest.mark.parametrize(("ranks", "preparing"), [(2, 1), (5, 4), (7, 3), (7, 4), (9, 3)])
def test_every_share_is_prepared_and_trained_once_and_no_rank_has_none(ranks, preparing):
    roles = Roles(ranks, preparing)
    prepared = [list(roles.prepared_by(number)) for number in range(preparing)]
    trained = [list(roles.computed_by(rank)) for rank in range(roles.computing)]
    for groups, who in ((prepared, roles.preparer_of), (trained, roles.trainer_of)):
        assert all(groups)
        assert [share for group in groups for share in group] == list(range(roles.shares))
        assert all(who(share) == number for number, group in enumerate(groups) for share in group)
    assert [roles.prepares(rank) for rank in range(ranks)] == [False] * roles.computing + [True] * preparing


@pytest.mark.parametrize(("ranks", "preparing"), [(1, 1), (4, 4), (4, 7)])
def test_a_role_without_ranks_is_refused(ranks, preparing):
    with pytest.raises(ConfigError, match=f"{preparing} of {ranks} rank.* would prepare, which leaves none"):
        Roles(ranks, preparing)


def test_roles_are_told_in_words():
    assert Roles(2, 1).sentence() == "rank 0 computes, rank 1 prepares"
    assert Roles(7, 4).sentence() == "ranks 0-2 compute, ranks 3-6 prepare"
