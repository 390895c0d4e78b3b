"""Check that the files of a dataset are those that a job opened.

Their bytes are mapped, so changes would be visible.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.verify import verify
from leapmpi.errors import DataError


class FileStamps:
    """Size and times of the files of `dataset`, at construction."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        paths = [dataset.folder / names.DATASET_FILE, *map(dataset.part_path, range(dataset.parts))]
        # The watchdog may look while code of the user has changed the working directory.
        self._stamps = {path: (path.absolute(), _stamp(path)) for path in paths}

    def changed(self) -> str | None:
        """Return a sentence about the first changed file; None if all are the same.

        Reads a part only if its inode changed, but neither size nor modification time; then its digests decide.
        """
        for number, (path, (place, before)) in enumerate(self._stamps.items(), start=-1):
            now = _stamp(place)
            if now is None:
                return self._sentence(path, "it is gone")
            if before is None:
                continue
            if before.st_size != now.st_size:
                return self._sentence(path, f"it had {before.st_size} bytes, now it has {now.st_size}")
            if before.st_mtime_ns != now.st_mtime_ns:
                return self._sentence(path, f"written at {datetime.fromtimestamp(now.st_mtime):%Y-%m-%d %H:%M:%S}")
            # A new name or new permissions change this time too; only the digests tell them from other content.
            if before.st_ctime_ns != now.st_ctime_ns and not self._sound(number):
                return self._sentence(path, "its digests do not fit any more")
        return None

    def _sound(self, number: int) -> bool:
        """Return whether part `number` fits its digests; -1 stands for dataset.h5, which is read at the start only."""
        try:
            verify(self.dataset, parts=[number] if number >= 0 else [])
        except DataError:
            return False
        return True

    def _sentence(self, path: Path, what: str) -> str:
        return (
            f"{path} changed while the job read it ({what}); leave a dataset alone while jobs use it, and start again"
        )


def _stamp(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
