"""Stores for the rows of layers: in memory, or in files on the node, from which a killed job resumes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.errors import DataError
from leapmpi.system.atomic_files import explain, remove

_DONE = "finished.json"


class RowStore:
    """Rows in memory. Nothing outlives the process."""

    on_disk = False
    """Whether rows are in mapped files, which memory holds as far as it has room."""

    def rows(self, name: str, count: int, width: int, dtype: np.dtype) -> np.ndarray:
        """Allocate `count` rows of `width`, not filled. Local."""
        return np.empty((count, width), dtype)

    def finish(self, layers: int, name: str, *others: str) -> None:
        """Note that `layers` layers are done; the last one wrote `name`, and with it the rows `others`. Local."""

    def drop(self, name: str) -> None:
        """Release the rows `name`, which are no longer needed. Local."""

    def finished(self, communicator: Communicator, names: Sequence[str]) -> int:
        """Count the layers whose rows every rank has kept, by `names` from the first layer on. Collective."""
        return 0

    def kept(self, name: str, count: int, width: int, dtype: np.dtype) -> np.ndarray:
        """Return rows that an earlier start has finished. Local."""
        raise NotImplementedError("rows in memory do not outlive a process")

    def close(self) -> None:
        """Remove what is left. Local."""

    def release(self) -> None:
        """Let another process use what is left. Local."""


class StagedRows(RowStore):
    """Rows in files of `folder`, one folder for each rank in it, mapped into memory.

    `key` holds all that the rows depend on: dataset, weights, settings, ranks. With `resume` the files of an earlier
    start with the same key are used. Raises DataError where the folder cannot be used.
    """

    on_disk = True

    def __init__(self, folder: Path, rank: int, key: dict[str, Any], resume: bool) -> None:
        of_key = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=6).hexdigest()
        self.folder = folder / f"leapmpi-predict-{of_key}-rank-{rank}"
        self.key = key
        self._lock = _locked(self.folder.with_suffix(".lock"), folder)
        self._layers: list[str] = []
        try:
            if resume:
                self._layers = self._read()
            if not self._layers:
                remove(self.folder)
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explain(error, self.folder) from error

    def rows(self, name: str, count: int, width: int, dtype: np.dtype) -> np.ndarray:
        """Make a file with all its space allocated, so that a full disk is noticed. Raises ResourceError, DataError."""
        path, size = self._path(name), count * width * dtype.itemsize
        try:
            with open(path, "wb") as file:
                if size:
                    os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise explain(error, path) from error
        return self._mapped(path, count, width, dtype)

    def finish(self, layers: int, name: str, *others: str) -> None:
        """Write the rows to disk, then note that they are there."""
        path = self._path(name)
        try:
            # Rows before the note: after a crash it must not name rows that never reached the disk.
            for each in (name, *others):
                with open(self._path(each), "rb+") as file:
                    os.fsync(file.fileno())
            self._layers = [*self._layers[: layers - 1], name]
            aside = self.folder / f"{_DONE}.new"
            with open(aside, "w", encoding="utf-8") as text:
                json.dump({"key": self.key, "layers": self._layers}, text)
                text.flush()
                os.fsync(text.fileno())
            os.replace(aside, self.folder / _DONE)
        except OSError as error:
            raise explain(error, path) from error

    def drop(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def finished(self, communicator: Communicator, names: Sequence[str]) -> int:
        """Return the highest layer, from 1, whose rows all ranks still have; 0 for none."""
        here = [number + 1 for number, name in enumerate(names) if name in self._layers and self._path(name).is_file()]
        flags = np.zeros(len(names) + 1, np.int64)
        flags[here] = 1
        flags[0] = 1
        return int(np.flatnonzero(communicator.all_gather_rows(flags).all(axis=0)).max())

    def kept(self, name: str, count: int, width: int, dtype: np.dtype) -> np.ndarray:
        """Map the rows of an earlier start. Raises DataError for a file of another size."""
        path, size = self._path(name), count * width * dtype.itemsize
        if path.stat().st_size != size:
            raise DataError(f"{path}: it has {path.stat().st_size} bytes, not {size}; leave out --resume")
        return self._mapped(path, count, width, dtype)

    def close(self) -> None:
        # The lock is held to the end: nobody may begin in a folder that is being removed.
        remove(self.folder)
        self.folder.with_suffix(".lock").unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.rows"

    def _mapped(self, path: Path, count: int, width: int, dtype: np.dtype) -> np.ndarray:
        if not count * width:
            return np.empty((count, width), dtype)
        with open(path, "rb+") as file:
            mapped = mmap.mmap(file.fileno(), count * width * dtype.itemsize)
        # Rows are read in random order, so read-ahead would waste disk bandwidth where memory is short.
        mapped.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(mapped, dtype).reshape(count, width)

    def _read(self) -> list[str]:
        """Return the layers that an earlier start with the same key has finished."""
        try:
            found = json.loads((self.folder / _DONE).read_text(encoding="utf-8"))
            return [str(name) for name in found["layers"]] if found["key"] == self.key else []
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return []


def _locked(path: Path, folder: Path) -> int:
    """Take the lock `path` in the stage `folder`; it is held until the descriptor is closed, which is returned.

    Raises DataError where another process holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise explain(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DataError(
            f"{folder} is used by another leapmpi predict of the same rows; wait for its end, or name another folder: "
            "--stage FOLDER"
        ) from None
    return descriptor
