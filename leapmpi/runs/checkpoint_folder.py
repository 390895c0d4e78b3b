"""Checkpoints on disk: RUN/checkpoint/epoch-EEEEEE-iteration-IIIIIIIII/, each complete or absent.

state.h5 holds the state shared by all ranks; rank-NNNNN.h5 holds the state of one rank, if ranks differ. A checkpoint
is written to a hidden folder, synced and renamed; only then are older ones removed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.config.plain_values import Schema, an_object
from leapmpi.dataset.hdf5.named_arrays import read_named_arrays, write_named_arrays
from leapmpi.dataset.hdf5.names import CHECKPOINT_FORMAT
from leapmpi.errors import DataError, LeapmpiError
from leapmpi.runs.file_names import CHECKPOINTS
from leapmpi.system.atomic_files import explain, put_in_place, remove

_STATE = "state.h5"
_ARRAYS = "arrays"
_NAME = re.compile(r"epoch-(\d{6})-iteration-(\d{9})")
_DTYPES = ("<f4", "<f8", "<i8", "<i4", "<u8", "|u1")


@dataclass
class CheckpointFile:
    """One file of a checkpoint: arrays by name, and plain values that JSON can hold."""

    arrays: dict[str, np.ndarray]
    values: dict[str, Any]


def name_of(epoch: int, iteration: int) -> str:
    """Return the name of the checkpoint before `iteration` of `epoch`. Names sort by time."""
    return f"epoch-{epoch:06d}-iteration-{iteration:09d}"


_KEPT = 2
"""The last checkpoint may be damaged by what ended the run; the one before it is whole."""


class CheckpointFolder:
    """The checkpoints of the run in folder `run`; the newest two are kept."""

    def __init__(self, run: Path) -> None:
        self.path = run / CHECKPOINTS

    def names(self) -> list[str]:
        """List all checkpoints by name, oldest first. Raises DataError if they cannot be listed."""
        try:
            return sorted(each.name for each in self.path.iterdir() if _NAME.fullmatch(each.name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise DataError(f"{self.path}: the checkpoints cannot be read ({error.strerror})") from None

    def newest(self, schema: Schema = an_object) -> tuple[str | None, CheckpointFile | None, list[str]]:
        """Return name and state of the newest intact checkpoint, and a complaint about each damaged newer one.

        The plain values of the state fit `schema`. Returns (None, None, complaints) if there is none.
        """
        complaints: list[str] = []
        for name in reversed(self.names()):
            try:
                return name, self._complete(name, schema), complaints
            except DataError as error:
                complaints.append(str(error))
        return None, None, complaints

    def read_rank(
        self, name: str, rank: int, state: CheckpointFile, mapped_names: Collection[str] = ()
    ) -> CheckpointFile:
        """Read the state of `rank` alone; arrays called `mapped_names` stay in the file, read-only.

        Raises DataError if it is damaged or from another checkpoint.
        """
        path = self.path / name / _rank_file(rank)
        of_rank = _read(path, mapped_names=mapped_names)
        if of_rank.values.get("checkpoint") != state.values["checkpoint"]:
            raise DataError(f"{path} belongs to another checkpoint than {_STATE}")
        return of_rank

    def begin(self, name: str) -> None:
        """Create the hidden folder for the checkpoint `name`. On rank 0."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise DataError(f"{self.path} is a file where the checkpoint folder should be; remove it")
            self.path.mkdir(exist_ok=True)
            remove(self._aside(name))
            self._aside(name).mkdir()
        except OSError as error:
            raise explain(error, self.path / name) from None

    def write_rank(self, name: str, rank: int, state: CheckpointFile) -> None:
        """Write the state of `rank` alone, between `begin` and `finish`. On that rank."""
        self._write(self._aside(name) / _rank_file(rank), state)

    def finish(self, name: str, state: CheckpointFile) -> None:
        """Write the shared state, rename the checkpoint to `name`, remove the oldest beyond `keep`. On rank 0."""
        self._write(self._aside(name) / _STATE, state)
        try:
            put_in_place(self._aside(name), self.path / name)
            # Remove older checkpoints only now: the new one is complete on disk.
            for old in [each for each in self.names() if each != name][: 1 - _KEPT]:
                remove(self.path / old)
        except OSError as error:
            raise explain(error, self.path / name) from None

    def abandon(self, name: str) -> None:
        """Remove the unfinished checkpoint `name`, if possible. On rank 0."""
        with suppress(OSError):
            remove(self._aside(name))

    def tidy(self, beyond: str | None) -> None:
        """Remove unfinished checkpoints of earlier starts, and damaged ones later than `beyond`."""
        if not self.path.is_dir():
            return
        for each in self.path.iterdir():
            unfinished = each.name.startswith(".") and _NAME.match(each.name[1:])
            if unfinished or (beyond is not None and _NAME.fullmatch(each.name) and each.name > beyond):
                remove(each)

    def end(self) -> int:
        """Return the number of epochs before the newest checkpoint if it is at the end of one; else 0."""
        found = _NAME.fullmatch((self.names() or [""])[-1])
        return int(found[1]) if found and not int(found[2]) else 0

    def keep_end(self, epochs: int) -> None:
        """Remove all checkpoints of a finished run of `epochs` except the last, from which it can continue.

        Errors of removal are ignored: the run is finished anyway.
        """
        end = name_of(epochs, 0)
        # leapmpi did not write a file of this name; leave it alone.
        if not self.path.is_dir():
            return
        with suppress(OSError):
            for each in self.path.iterdir() if end in self.names() else [self.path]:
                if each.name != end:
                    remove(each)

    def _aside(self, name: str) -> Path:
        return self.path / f".{name}.partial"

    def _complete(self, name: str, schema: Schema = an_object) -> CheckpointFile:
        """Read the shared state of the checkpoint `name`. Raises DataError unless all its files are intact."""
        state = _read(self.path / name / _STATE, schema)
        for rank in range(state.values.get("rank_pieces", 0)):
            self.read_rank(name, rank, state)
        return state

    def _write(self, path: Path, state: CheckpointFile) -> None:
        try:
            write_named_arrays(path, CHECKPOINT_FORMAT, _ARRAYS, state.arrays, state.values)
        except OSError as error:
            raise explain(error, path) from None


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.h5"


def _read(path: Path, schema: Schema = an_object, mapped_names: Collection[str] = ()) -> CheckpointFile:
    try:
        return CheckpointFile(*read_named_arrays(path, CHECKPOINT_FORMAT, _ARRAYS, _DTYPES, schema, mapped_names))
    except DataError:
        raise
    except LeapmpiError as error:
        raise DataError(str(error)) from None
