"""A hundred ranks killed, one a job (tests/soak/kills.py)."""

import pytest

from tests.soak.kills import soak


@pytest.mark.timeout(4 * 3600)
def test_a_hundred_kills_on_three_ranks(tmp_path):
    hits, reported, compared, _ = soak(100, 3, seed=0, base=tmp_path)
    print(sorted(hits.items()), reported, compared)
    assert len(hits) >= 20
