"""The files of a plain graph keep their bytes: one digest over everything in them but their creator and time."""

import hashlib

import h5py
import numpy as np

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import open_graph, write_graph
from tests.support.graphs import random_graph

DIGEST = "f581055235a00626d97e45d33afe56ef"
"""As before typed graphs. A change of it is a change of the format of plain graphs."""


def lines_of(path):
    with h5py.File(path) as file:
        own = sorted(set(file.attrs) - {"digest", "created_utc", "creator"})
        lines = [f"{name} {file.attrs[name]}" for name in own]

        def add(name, item):
            if isinstance(item, h5py.Dataset):
                lines.append(f"{name} {item.dtype} {item.shape} {item.attrs['digest']}")

        file.visititems(add)
    return lines


def test_plain_files_keep_their_bytes(tmp_path):
    graph = random_graph()
    write_graph(tmp_path / "g.h5", graph)
    assignment = np.arange(graph.vertices) * 7 % 3
    write_dataset(tmp_path / "d", open_graph(tmp_path / "g.h5"), assignment, 3, method="test", figures={}, seed=0)
    paths = [tmp_path / "g.h5", *sorted((tmp_path / "d").iterdir())]
    text = "\n".join(line for path in paths for line in lines_of(path))
    assert hashlib.blake2b(text.encode(), digest_size=16).hexdigest() == DIGEST
