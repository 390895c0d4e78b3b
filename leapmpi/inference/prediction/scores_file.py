"""The file with scores of pairs: a table in text, or arrays in HDF5; rank 0 writes it."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from leapmpi.dataset.names_of_vertices import VertexNames
from leapmpi.inference.output.words import Words
from leapmpi.system.atomic_files import explain, remove_abandoned, written_aside


@dataclass(frozen=True)
class PairTable:
    """Pairs of original ids int64[k, 2], and a score of each, float32[k], or of each class, float32[k, classes].

    classes: names of the classes, where these are scored and have names.
    """

    pairs: np.ndarray
    scores: np.ndarray
    classes: list[str] | None

    def write(self, path: Path, names: VertexNames | None, facts: dict[str, Any], overwrite: bool) -> None:
        """Write the file `path`, .csv or .h5, whole or not at all. Raises DataError, ResourceError."""
        remove_abandoned(path)
        with written_aside(path, overwrite=overwrite) as aside:
            try:
                if path.suffix == ".csv":
                    self._write_text(aside, names)
                else:
                    self._write_arrays(aside, facts)
            except OSError as error:
                raise explain(error, path) from error

    def _write_text(self, path: Path, names: VertexNames | None) -> None:
        """Write lines of source, destination and score, by names where the vertices have some."""
        words = Words(names, self.classes, "score")
        columns = ["score"] if self.scores.ndim == 1 else [f"score_{name}" for name in self._class_words()]
        with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["source", "destination", *columns])
            ends = (words.of_vertices(self.pairs[:, side]) for side in (0, 1))
            rows = self.scores.reshape(len(self.scores), len(columns)).tolist()
            writer.writerows(
                [*pair, *(f"{score:.9g}" for score in row)] for *pair, row in zip(*ends, rows, strict=True)
            )

    def _write_arrays(self, path: Path, facts: dict[str, Any]) -> None:
        with h5py.File(path, "w") as file:
            file["pairs"], file["scores"] = self.pairs, self.scores
            file.attrs.update(facts)
            if self.classes is not None and self.scores.ndim > 1:
                file.attrs["class_names"] = json.dumps(self.classes, ensure_ascii=False)

    def _class_words(self) -> list[str]:
        count = self.scores.shape[1]
        return self.classes if self.classes and len(self.classes) == count else list(map(str, range(count)))
