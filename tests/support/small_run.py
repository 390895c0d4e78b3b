"""The small dataset that most tests read, and a finished run on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from leapmpi import Config, train
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.runs.run import Run
from tests.support.graphs import random_graph

if TYPE_CHECKING:
    from leapmpi.comm.world import Comm


def write_small_data(folder: Path) -> Path:
    """Write a dataset of four uneven parts that trains in a moment: 240 vertices, 5 features, 3 classes."""
    graph = random_graph(n=240, degree=6)
    assignment = np.minimum(np.arange(graph.vertices) * 7 % 6, 3)
    write_dataset(folder, graph, assignment, 4, method="test", figures={}, seed=0)
    return folder


def train_small(data: Path, folder: Path, comm: Comm | None = None) -> Run:
    """Three epochs on it, recorded in `folder`, by the ranks of `comm` or all."""
    settings = {"data": str(data), "model.hidden": 16, "train": {"epochs": 3, "batch_size": 32, "lr": 0.05}}
    place = {"run": {"folder": str(folder), "threads": 1, "log_level": "error"}}
    return train(Config.from_values({**settings, **place}), comm)
