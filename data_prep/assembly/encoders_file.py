"""Files beside a graph file of tables: graph.encoders.json (encoders of columns) and graph.keys.npz (keys of rows)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from data_prep.edges.typed_graph import RowKeys
from leapmpi.dataset.column_encoders import FILE, KEYS, THERE
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.names_of_vertices import digest_of
from leapmpi.system.atomic_files import remove_abandoned, written_aside


@contextmanager
def encoders_written(path: Path, encoders: Mapping[str, Any], graph: Graph, *, overwrite: bool) -> Iterator[Path]:
    """Write `encoders` for the graph file `path`, note them in `graph.attributes`, and keep them if the body succeeds.

    Yields the path of the file. Raises DataError when it exists and `overwrite` is false.
    """

    def write(file: TextIO) -> None:
        json.dump(encoders, file, ensure_ascii=False, indent=1, sort_keys=True)

    with _written(path, "encoders.json", FILE, graph, overwrite, lambda aside: _text_to(aside, write)) as target:
        yield target


@contextmanager
def keys_written(path: Path, keys: Mapping[str, RowKeys], graph: Graph, *, overwrite: bool) -> Iterator[Path]:
    """Write the `keys` of rows by table for the graph file `path`, as `encoders_written` does encoders."""
    arrays = {name: each.words for name, each in keys.items()}
    arrays |= {name + THERE: each.there for name, each in keys.items()}

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())

    with _written(path, "keys.npz", KEYS, graph, overwrite, write) as target:
        yield target


def _text_to(path: Path, write: Callable[[TextIO], None]) -> None:
    with path.open("w", encoding="utf-8") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _written(
    path: Path, suffix: str, kind: str, graph: Graph, overwrite: bool, write: Callable[[Path], None]
) -> Iterator[Path]:
    """Write the file of `kind` beside the graph file `path`: graph.SUFFIX of graph.h5."""
    target = path.with_name(f"{path.stem if path.suffix == '.h5' else path.name}.{suffix}")
    remove_abandoned(target)
    with written_aside(target, overwrite=overwrite) as aside:
        write(aside)
        graph.attributes |= {kind: target.name, f"{kind}_digest": digest_of(aside)}
        yield target
