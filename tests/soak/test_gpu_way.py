"""Training on a stand-in for a GPU: every sampler, model, strategy and remote form."""

import pytest

from tests.device.test_gpu_way import CASES, FEW, digests


@pytest.mark.parametrize("name", sorted(CASES.keys() - FEW))
def test_a_gpu_takes_the_steps_of_the_cpu_that_stands_in(name, small_data, tmp_path):
    found, expected = digests(small_data, tmp_path, name)
    assert found == expected
