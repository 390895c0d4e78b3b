"""The encoders of the columns of tables in a JSON file beside the graph file: graph.encoders.json of graph.h5."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leapmpi.dataset.column_encoders import DIGEST, FILE
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.names_of_vertices import digest_of
from leapmpi.system.atomic_files import remove_abandoned, written_aside


@contextmanager
def encoders_written(path: Path, encoders: Mapping[str, Any], graph: Graph, *, overwrite: bool) -> Iterator[Path]:
    """Write `encoders` for the graph file `path`, note them in `graph.attributes`, and keep them if the body succeeds.

    Yields the path of the file. Raises DataError when it exists and `overwrite` is false.
    """
    target = path.with_name(f"{path.stem if path.suffix == '.h5' else path.name}.encoders.json")
    remove_abandoned(target)
    with written_aside(target, overwrite=overwrite) as aside:
        with aside.open("w", encoding="utf-8") as file:
            json.dump(encoders, file, ensure_ascii=False, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        graph.attributes |= {FILE: target.name, DIGEST: digest_of(aside)}
        yield target
