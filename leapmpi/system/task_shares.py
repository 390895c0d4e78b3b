"""Shares of a stage that tasks of a job array finish by themselves, in a folder that all of them reach.

A task works in its own work folder. Once its share is complete there, the folder moves to .NAME.shares-KEY beside the
output, under the name STAGE-I-of-N. When all shares of a stage are there, tasks go on to the next one, and the command
without --share takes those of the last.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from leapmpi.errors import ConfigError
from leapmpi.system.stage_files import StageFiles, Stored


@dataclass(frozen=True)
class Task:
    """Share `index` of `count` shares."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_task(text: str | None) -> Task | None:
    """Return the task of --share `text`; None without. Raises ConfigError."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not found or int(found[1]) >= int(found[2]):
        raise ConfigError(f"--share {text}: expected I/N with I from 0 to N - 1, such as 0/4 to 3/4")
    return Task(int(found[1]), int(found[2]))


class ShareFinished(Exception):
    """A task has finished its share of a stage, which ends the command; the text says what comes next."""


@contextmanager
def ending_with_a_share() -> Iterator[None]:
    """Let a task that has finished its share leave the body, and print what comes next."""
    try:
        yield
    except ShareFinished as finished:
        print(finished)


class TaskShares:
    """The shares of the command that `key` identifies, which makes `output`; `task` is None for the final command."""

    def __init__(self, output: Path, key: str, task: Task | None) -> None:
        digest = hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
        self.task = task
        self.folder = output.absolute().parent / f".{output.name}.shares-{digest}"
        self._key, self._output = key, output
        self.taken: list[str] = []
        """Stages whose shares were taken."""

    def key_of(self, task: Task) -> str:
        """Return the key of the work folder of `task`."""
        return f"{self._key} share {task}"

    def load(self, stage: str) -> list[Stored] | None:
        """Return values and arrays of all shares of `stage`, in order; None where one is missing or damaged."""
        for count in [self.task.count] if self.task else sorted(self._counts(stage)):
            found = [self._load(stage, Task(index, count)) for index in range(count)]
            whole = [each for each in found if each is not None]
            if len(whole) == count:
                self.taken.append(f"{stage} of {count} tasks")
                return whole
        return None

    def begin(self, stage: str, *, last: bool = False) -> Task:
        """Return the task, which does its share of `stage` now. Raises ShareFinished where it has done so before.

        last: no stage of tasks follows.
        """
        assert self.task is not None, "the final command has no share"
        if self._is_there(stage, self.task):
            raise ShareFinished(f"share {self.task} of {stage} is there already; {self._next(stage, last)}")
        return self.task

    def finish(self, stage: str, work: Path, *, last: bool = False) -> NoReturn:
        """Take the task's work folder, where `stage` is finished, as its share, and raise ShareFinished.

        last: as for `begin`.
        """
        assert self.task is not None, "the final command has no share"
        key, place = self.key_of(self.task), self._place(stage, self.task)
        # Only what the stage consists of moves.
        StageFiles(work, key)
        place.parent.mkdir(exist_ok=True)
        if place.exists() and not self._is_there(stage, self.task):
            shutil.rmtree(place, ignore_errors=True)
        try:
            os.rename(work, place)
        except OSError:
            # The same task, started twice, may have been faster.
            if not self._is_there(stage, self.task):
                raise
        raise ShareFinished(f"share {self.task} of {stage} is finished; {self._next(stage, last)}")

    def notes(self) -> list[str]:
        """Describe the shares that the final command took, or found and did not take."""
        if self.taken:
            return [f"shares taken: {', '.join(self.taken)}"]
        unused = "shares of tasks are not complete, or of other flags or another source, and were not used"
        return [unused] if not self.task and _folders(self._output) else []

    def _next(self, stage: str, last: bool) -> str:
        assert self.task is not None, "the final command has no share"
        count = self.task.count
        missing = [str(i) for i in range(count) if not self._is_there(stage, Task(i, count))]
        if missing:
            return f"of the {count} shares of this stage these are missing: {', '.join(missing)}"
        then = f"without --share the same command makes {self._output}" if last else "go on with the next stage"
        return f"all {count} shares of this stage are there; {then}"

    def _place(self, stage: str, task: Task) -> Path:
        return self.folder / f"{stage}-{task.index}-of-{task.count}"

    def _is_there(self, stage: str, task: Task) -> bool:
        return StageFiles.belongs(self._place(stage, task), self.key_of(task))

    def _counts(self, stage: str) -> set[int]:
        """Return the numbers of tasks that shares of `stage` are for."""
        named = re.compile(rf"{re.escape(stage)}-\d+-of-(\d+)")
        names = [each.name for each in self.folder.iterdir()] if self.folder.is_dir() else []
        return {int(found[1]) for name in names if (found := named.fullmatch(name))}

    def _load(self, stage: str, task: Task) -> Stored | None:
        place = self._place(stage, task)
        return StageFiles(place, self.key_of(task)).load(stage) if self._is_there(stage, task) else None


def remove_shares(output: Path) -> None:
    """Remove the shares of every command that makes `output`."""
    for each in _folders(output):
        shutil.rmtree(each, ignore_errors=True)


def _folders(output: Path) -> list[Path]:
    return list(output.absolute().parent.glob(f".{glob.escape(output.name)}.shares-*"))
