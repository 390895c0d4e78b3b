"""Where checkpoints lie: RUN/checkpoint/epoch-EEEEEE-iteration-IIIIIIIII/, each whole or not there at all.

state.h5 holds what is the same on all ranks; where ranks hold state of their own, rank-NNNNN.h5 holds that of each.
A checkpoint is written aside, synced and renamed; older ones go only after that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.dataset.hdf5.named_arrays import read_named_arrays, write_named_arrays
from leapmpi.dataset.hdf5.names import CHECKPOINT_FORMAT
from leapmpi.errors import DataError, LeapmpiError
from leapmpi.system.atomic_files import explain, put_in_place, remove

FOLDER = "checkpoint"
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
    """The name of the checkpoint before `iteration` of `epoch`; names sort by time."""
    return f"epoch-{epoch:06d}-iteration-{iteration:09d}"


class CheckpointFolder:
    """The checkpoints of the run in folder `run`."""

    def __init__(self, run: Path, keep: int = 1) -> None:
        self.path = run / FOLDER
        self.keep = keep

    def names(self) -> list[str]:
        """The checkpoints there are, oldest first."""
        try:
            return sorted(each.name for each in self.path.iterdir() if _NAME.fullmatch(each.name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise DataError(f"{self.path}: the checkpoints cannot be read ({error.strerror})") from None

    def newest(self) -> tuple[str | None, CheckpointFile | None, list[str]]:
        """Name and state of the newest checkpoint that is not damaged, and what is wrong with newer ones.

        (None, None, complaints) when there is none.
        """
        complaints = []
        for name in reversed(self.names()):
            try:
                return name, self._complete(name), complaints
            except DataError as error:
                complaints.append(str(error))
        return None, None, complaints

    def rank_piece(self, name: str, rank: int, state: CheckpointFile) -> CheckpointFile:
        """The state of `rank` alone. Raises DataError when it is damaged or of another checkpoint."""
        path = self.path / name / _rank_file(rank)
        piece = _read(path)
        if piece.values.get("checkpoint") != state.values["checkpoint"]:
            raise DataError(f"{path} belongs to another checkpoint than {_STATE}")
        return piece

    def begin(self, name: str) -> None:
        """Make the folder in which the checkpoint `name` is written aside. On rank 0."""
        try:
            self.path.mkdir(exist_ok=True)
            remove(self._aside(name))
            self._aside(name).mkdir()
        except OSError as error:
            raise explain(error, self.path / name) from None

    def write_rank(self, name: str, rank: int, piece: CheckpointFile) -> None:
        """Write the state of `rank` alone, between `begin` and `finish`."""
        self._write(self._aside(name) / _rank_file(rank), piece)

    def finish(self, name: str, state: CheckpointFile) -> None:
        """Write the state of all ranks, put the checkpoint in place, and remove the oldest beyond `keep`. On rank 0."""
        self._write(self._aside(name) / _STATE, state)
        try:
            put_in_place(self._aside(name), self.path / name)
        except OSError as error:
            raise explain(error, self.path / name) from None
        for old in [each for each in self.names() if each != name][: -self.keep + 1 or None]:
            remove(self.path / old)

    def give_up(self, name: str) -> None:
        """Remove what was written aside. On rank 0."""
        remove(self._aside(name))

    def tidy(self, beyond: str | None) -> None:
        """Remove what an earlier start left half-written, and checkpoints later than `beyond`, which are damaged."""
        if not self.path.is_dir():
            return
        for each in self.path.iterdir():
            unfinished = each.name.startswith(".") and _NAME.match(each.name[1:])
            if unfinished or (beyond is not None and _NAME.fullmatch(each.name) and each.name > beyond):
                remove(each)

    def drop(self) -> None:
        """Remove all checkpoints: the run is finished."""
        remove(self.path)

    def _aside(self, name: str) -> Path:
        return self.path / f".{name}.partial"

    def _complete(self, name: str) -> CheckpointFile:
        """The state of a checkpoint of which all files are there and sound."""
        state = _read(self.path / name / _STATE)
        for rank in range(state.values.get("rank_pieces", 0)):
            self.rank_piece(name, rank, state)
        return state

    def _write(self, path: Path, piece: CheckpointFile) -> None:
        try:
            write_named_arrays(path, CHECKPOINT_FORMAT, _ARRAYS, piece.arrays, piece.values)
        except OSError as error:
            raise explain(error, path) from None


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.h5"


def _read(path: Path) -> CheckpointFile:
    try:
        return CheckpointFile(*read_named_arrays(path, CHECKPOINT_FORMAT, _ARRAYS, _DTYPES))
    except DataError:
        raise
    except LeapmpiError as error:
        raise DataError(str(error)) from None
