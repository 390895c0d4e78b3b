"""Loading: a rank of a dataset with many parts opens its own alone to verify them."""

import numpy as np
import pytest

from leapmpi.config.schema import Config
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import DataError
from leapmpi.session.setup import _verify
from tests.support.graphs import random_graph


@pytest.mark.parametrize(("parts", "reads_all"), [(4, True), (70, False)])
def test_other_parts_are_read_only_if_they_are_few(parts, reads_all, tmp_path):
    folder, graph = tmp_path / "data", random_graph(n=240, degree=6)
    write_dataset(folder, graph, np.arange(240) % parts, parts, method="test", figures={}, seed=0)
    config, dataset = Config.from_values({"data": str(folder)}), open_dataset(folder)
    assert _verify(config, dataset, range(parts), False)
    path = dataset.part(parts - 1).path
    path.write_bytes(b"no longer HDF5")
    dataset = open_dataset(folder)
    if reads_all:
        with pytest.raises(DataError, match=path.name):
            _verify(config, dataset, range(2), False)
    else:
        assert _verify(config, dataset, range(2), False)
    with pytest.raises(DataError, match=path.name):
        _verify(config, dataset, range(parts - 1, parts), False)
