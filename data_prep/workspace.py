"""The workspace of a command: a folder for temporary files beside the output, a budget of bytes, some threads.

The folder is called .NAME.work-PROCESS-TOKEN. The process that makes it holds a lock on it until it ends, so
that the next start can distinguish an abandoned folder from one in use. If the command and its source are the same, it
goes on from the stages that are finished there; otherwise it removes the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from leapmpi.config.setting import parse_size
from leapmpi.errors import ConfigError, ResourceError, counted
from leapmpi.system.atomic_files import explain, is_full, remove_abandoned, temporary_folder
from leapmpi.system.memory import available_bytes
from leapmpi.system.stage_files import StageFiles, Stored
from leapmpi.system.task_shares import Task, TaskShares, remove_shares
from leapmpi.system.worker_threads import given_processors, processor_count, set_processor_count
from leapmpi.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Buffer  # since Python 3.12

INTERPRETER_BYTES = 256 * 2**20
"""Memory of Python, numpy, numba and h5py before any data; measured: 160 to 200 MiB."""

LEAST_BYTES = 2 * INTERPRETER_BYTES
"""The smallest --max-mem."""

_WORKERS_FITTING = 8
_BYTES_PER_WORKER = 128 * 2**20
"""Memory for the blocks of a worker, beyond those that fit any --max-mem."""


def memory_budget(text: str | None) -> int:
    """Return the bytes that --max-mem `text` allows; by default half of what the machine has left, at least 1 GiB.

    Raises ConfigError when the text is not a size, or smaller than LEAST_BYTES.
    """
    if text is None:
        return max(2**30, (available_bytes() or 2**33) // 2)
    size = parse_size(text, "--max-mem")
    if size < LEAST_BYTES:
        raise ConfigError(f"--max-mem {text} is too small; the least is {LEAST_BYTES // 2**20}M")
    return size


def disk_budget(text: str | None) -> int | None:
    """Return the bytes that --max-disk `text` allows the work folder; None without. Raises ConfigError for no size."""
    return None if text is None else parse_size(text, "--max-disk")


def use_workers(wanted: int | None, memory: int) -> None:
    """Share the work of this process among `wanted` threads, by default a thread for each processor given.

    Without `wanted` there are no more than `memory` bytes suffice for.
    """
    fitting = max(_WORKERS_FITTING, memory // _BYTES_PER_WORKER)
    set_processor_count(wanted or min(fitting, given_processors()))


def require(memory: int, size: int, step: str, advice: str) -> None:
    """Raise ResourceError when `step` takes `size` bytes besides the interpreter, and `memory` cannot hold them.

    `advice` says what fits instead.
    """
    if size + INTERPRETER_BYTES > memory:
        raise ResourceError(
            f"{step} needs {gibibytes(size + INTERPRETER_BYTES)} of memory, but may use {gibibytes(memory)} "
            f"(--max-mem); {advice}"
        )


def require_whole(name: str, size: int, times: int, workspace: Workspace | None) -> None:
    """Raise ResourceError where `size` bytes of a file that is held whole, `times` as many once read, do not fit.

    `times` is measured on real graphs, see data_prep/MEMORY.md. name: the file in messages.
    """
    if workspace is not None:
        advice = "allow more, or save edges and dense features as arrays of a generic .npz, which is read in pieces"
        step = f"{name}: reading {size:,} bytes of a format that is held whole"
        require(workspace.memory, times * size, step, advice)


class _Counted:
    """A temporary file that is being written, whose bytes a workspace counts before they are."""

    def __init__(self, file: BinaryIO, workspace: Workspace) -> None:
        self._file, self._workspace = file, workspace

    def write(self, content: Buffer) -> int:
        """Write `content`. Raises ResourceError where the workspace may not take as much."""
        self._workspace.take(memoryview(content).nbytes)
        return self._file.write(content)


class Workspace:
    """A folder for temporary files, `memory` bytes that the process may use, and `threads`.

    disk: bytes that the temporary files may take at a time; None bounds them by nothing. key: identifies the command,
    whose finished stages are kept in the folder (`stage_key`). shares: those of the tasks that do the work together.
    """

    def __init__(
        self,
        folder: Path,
        memory: int,
        threads: int | None = None,
        disk: int | None = None,
        key: str = "",
        shares: TaskShares | None = None,
    ) -> None:
        self.folder = folder
        self.shares = shares
        self._stages = StageFiles(folder, key) if key else None
        self._taken_over: list[str] = []
        self.memory = memory
        self.threads = threads or processor_count()
        self.disk = disk
        self._taken = 0
        # Names of files that an earlier run left are not used again.
        self._numbers = count(
            1 + max((int(each.name.rpartition("-")[2]) for each in folder.glob("*-[0-9]*")), default=-1)
        )

    def take(self, size: int, what: str = "a temporary file") -> None:
        """Count `size` more bytes of temporary files, which are still to be written.

        Raises ResourceError where they and the others do not fit; `what` needs them.
        """
        self._taken += size
        if self.disk is not None and self._taken > self.disk:
            # Of those that were written some have gone.
            self._taken = size + sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
            if self._taken > self.disk:
                raise ResourceError(
                    f"{what} takes {counted(size, 'byte')} in {self.folder.parent}, with all other temporary files "
                    f"{self._taken:,}, but they may take {self.disk:,} (--max-disk, or what is free); allow more, or "
                    "write elsewhere"
                )

    def finished(self, stage: str) -> Stored | None:
        """Return values and arrays of a `stage` that an earlier run of the same command finished; None without."""
        found = self._stages.load(stage) if self._stages else None
        if found is None:
            return None
        self._taken_over.append(stage)
        return found

    def finish(self, stage: str, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Record a finished `stage`, if the workspace belongs to a command that can go on; `values` as in JSON.

        Arrays that are mapped from files of the workspace stay there. Raises ResourceError as `take`.
        """
        if self._stages:
            self._stages.save(stage, values, arrays)

    @property
    def task(self) -> Task | None:
        """The task whose share of the work is done here; None where all of it is."""
        return self.shares.task if self.shares else None

    def finish_share(
        self, stage: str, values: dict[str, Any], arrays: dict[str, np.ndarray], *, last: bool = False
    ) -> NoReturn:
        """Record the task's share of `stage`, and raise ShareFinished. last: no stage of tasks follows."""
        assert self.shares is not None, "a task has shares"
        self.finish(stage, values, arrays)
        self.shares.finish(stage, self.folder, last=last)

    def notes(self) -> list[str]:
        """Describe what was taken from an earlier run, and from tasks."""
        before = ", ".join(self._taken_over)
        notes = [f"an earlier run was stopped; taken from it: {before}"] if before else []
        return [*notes, *(self.shares.notes() if self.shares else [])]

    @contextmanager
    def written(self, path: Path) -> Iterator[_Counted]:
        """Open the temporary file `path` for writing. Raises ResourceError as `take`."""
        with path.open("wb") as file:
            yield _Counted(file, self)

    def capacity(self, share: float = 1.0) -> int:
        """Return a `share` of the bytes that the interpreter leaves free."""
        return int(max(self.memory - INTERPRETER_BYTES, INTERPRETER_BYTES) * share)

    def path(self, name: str) -> Path:
        """Return a new path for a temporary file."""
        return self.folder / f"{name}-{next(self._numbers)}"

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Create an array of zeros, mapped from a temporary file; ResourceError when the disk is full."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size == 0:
            return np.zeros(shape, dtype)
        self.take(size)
        path = self.path(name)
        with path.open("w+b") as file:
            # Without this, writing through the map to a full disk would end the process by a signal.
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(path, dtype, "r+", 0, shape)

    def map(self, path: Path, dtype: np.dtype | str, shape: tuple[int, ...]) -> np.ndarray:
        """Map the temporary file `path` as an array."""
        if 0 in shape:
            return np.zeros(shape, dtype)
        return np.memmap(path, np.dtype(dtype), "r+", 0, shape)


_UNRELATED = ("max_disk", "workers", "overwrite", "keep_work", "command_line", "share")
"""Flags of a command that do not change what its stages hold."""


def stage_key(arguments: argparse.Namespace, sources: Iterable[Path | None], unrelated: Sequence[str] = ()) -> str:
    """Return a text that is equal for the same command with the same `sources`: files, or folders of files.

    unrelated: further flags, besides `_UNRELATED`, that do not change the stages.
    """
    flags = {name: str(value) for name, value in vars(arguments).items() if name not in (*_UNRELATED, *unrelated)}
    stamps = []
    for source in filter(None, sources):
        files = sorted(source.rglob("*")) if source.is_dir() else [source]
        for file, stat in ((file, file.stat()) for file in files if file.is_file()):
            stamps.append((str(file.absolute()), stat.st_size, stat.st_mtime_ns))
    return json.dumps([VERSION, flags, stamps])


@contextmanager
def workspace_beside(
    output: Path, memory: int, disk: int | None = None, key: str = "", keep: bool = False, task: Task | None = None
) -> Iterator[Workspace]:
    """Open a workspace in a folder beside `output`, removed at the end; first remove abandoned ones of `output`.

    disk: bytes that its files may take; by default those that are free now. key: a `stage_key`, by which a folder that
    the same command left is taken over. keep: leave the folder where the body fails. task: does a share of the work
    and raises ShareFinished; without it, shares of `output` are removed once the body has succeeded.

    Raises ResourceError when the disk is full, wherever in the body that shows, and DataError when the place may not be
    written to.
    """
    begins = str(output.absolute().parent / f".{output.name}.work-")
    shares = TaskShares(output, key, task) if key else None
    key = shares.key_of(task) if shares and task else key
    accepts = partial(StageFiles.belongs, key=key) if key else None
    try:
        with temporary_folder(output, "work", accepts=accepts, keep=keep) as folder:
            remove_abandoned(output)
            disk = shutil.disk_usage(folder).free if disk is None else disk
            yield Workspace(folder, memory, disk=disk, key=key, shares=shares)
            remove_shares(output)
    except OSError as error:
        # Other files, such as a source that may not be read, are named by the error itself.
        if is_full(error) or (error.filename and os.fsdecode(error.filename).startswith(begins)):
            raise explain(error, output) from error
        raise


def gibibytes(size: int) -> str:
    """Format `size` as a text such as 3.2 GiB."""
    return f"{size / 2**30:.1f} GiB"
