"""Finished stages of a command in its work folder: values and arrays, by which the same command goes on later.

A stage counts once its record is there, which gets its name last. Digests are compared when it is loaded, so that what
a crash of the machine left half written is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.system.worker_threads import in_order

_KEY = "command"
_RECORD = ".stage"
_DIGEST_BYTES = 16
_BLOCK_BYTES = 16 * 2**20


Stored = tuple[dict[str, Any], dict[str, np.ndarray]]
"""Values, as in JSON, and arrays of a stage."""


class StageFiles:
    """The stages in `folder`, of the command that `key` identifies. Files in it that belong to none are removed."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        if not self.belongs(folder, key):
            (folder / _KEY).write_text(key)
            return
        named = {_KEY}
        for record in folder.glob(f"*{_RECORD}"):
            named |= {record.name, *(each["file"] for each in json.loads(record.read_text())["arrays"].values())}
        for file in [each for each in folder.rglob("*") if each.is_file()]:
            if str(file.relative_to(folder)) not in named:
                file.unlink()

    @staticmethod
    def belongs(folder: Path, key: str) -> bool:
        """Return whether `folder` was left by the command that `key` identifies."""
        try:
            return (folder / _KEY).read_text() == key
        except (OSError, UnicodeDecodeError):
            return False

    def save(self, stage: str, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Record a finished `stage`: values as in JSON, and arrays. Those mapped from files of the folder stay there.

        Raises OSError.
        """
        described = {}
        for name, array in arrays.items():
            file = self._file_of(array) or self._written(f"{stage}-{name}", array)
            described[name] = {
                "file": file.name,
                "dtype": array.dtype.str,
                "shape": array.shape,
                "digest": _digest(file),
            }
        # The record appears whole, and after the arrays that it describes: a stage without one is done again.
        aside = self._folder / f"{stage}.new"
        aside.write_text(json.dumps({"values": values, "arrays": described}))
        os.replace(aside, self._folder / f"{stage}{_RECORD}")

    def load(self, stage: str) -> Stored | None:
        """Return values and arrays, mapped, of `stage`; None where it is not finished or a file is damaged."""
        try:
            record = json.loads((self._folder / f"{stage}{_RECORD}").read_text())
            arrays = {}
            for name, each in record["arrays"].items():
                file, shape, dtype = self._folder / each["file"], tuple(each["shape"]), np.dtype(each["dtype"])
                if _digest(file) != each["digest"]:
                    return None
                arrays[name] = np.zeros(shape, dtype) if 0 in shape else np.memmap(file, dtype, "r+", 0, shape)
        except (OSError, ValueError):
            return None
        return record["values"], arrays

    def _file_of(self, array: np.ndarray) -> Path | None:
        """Return the file of the folder that holds `array` and nothing else; None where there is none."""
        found = getattr(array, "filename", None)
        if not isinstance(array, np.memmap) or found is None or not array.flags.c_contiguous:
            return None
        file = Path(found)
        return file if file.parent == self._folder.resolve() and file.stat().st_size == array.nbytes else None

    def _written(self, name: str, array: np.ndarray) -> Path:
        file = self._folder / name
        with file.open("wb") as out:
            out.write(np.ascontiguousarray(array).data)
        return file


def _digest(file: Path) -> str:
    """Return the digest of the digests of all blocks of `file`, which threads share. Raises OSError."""
    with file.open("rb") as content:

        def blocks() -> Iterator[bytes]:
            while block := content.read(_BLOCK_BYTES):
                yield block

        found = in_order(lambda block: hashlib.blake2b(block, digest_size=_DIGEST_BYTES).digest(), blocks())
        return hashlib.blake2b(b"".join(found), digest_size=_DIGEST_BYTES).hexdigest()
