"""Export of a run in a chosen format. The output appears once it is complete."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from leapmpi.errors import ConfigError
from leapmpi.registry import Member, Registry
from leapmpi.runs.run import Run
from leapmpi.system.atomic_files import check_place, explain, remove_abandoned, written_aside
from leapmpi.tools.export.run_series import RunSeries

FOLDER = "exports"
"""Folder below the run folder for outputs without a given path."""


@dataclass(frozen=True)
class ExportSource:
    """Parts of a run that a format may read."""

    run: Run
    which: str = "best"
    """Weights to export: best or final."""

    @cached_property
    def series(self) -> RunSeries:
        """Settings, and numbers by epoch."""
        return RunSeries(self.run)


@dataclass(frozen=True)
class ExportFormat(Member):
    """A format: write(source, path), a line about it for people, and the default name of its output."""

    write: Callable[[ExportSource, Path], None]
    summary: str
    name: str
    suffix: str = ""
    """Suffix of outputs that selects the format; empty for none."""


KINDS = Registry("export format", "leapmpi.tools.export.kinds", ExportFormat)


def needed(module: str, kind: str, extra: str) -> ModuleType:
    """Import the third-party module that format `kind` needs. Raises ConfigError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"export to {kind} needs {module.partition('.')[0]}, which cannot be imported ({error}); pip install "
            f"'leapmpi[{extra}]'"
        ) from None


def kind_of(name: str | None, out: Path | None) -> str:
    """Return the format `name`, or the one implied by the suffix of `out`. Raises ConfigError if there is neither."""
    if name is not None:
        KINDS.load(name)
        return name
    suffixes = {KINDS.load(each).suffix: each for each in KINDS.names()}
    if out is None or out.suffix not in suffixes or not out.suffix:
        suffix_list = ", ".join(suffix for suffix in suffixes if suffix)
        raise ConfigError(f"choose a format: --to {'|'.join(KINDS.names())}, or an output ending in {suffix_list}")
    return suffixes[out.suffix]


def export(source: ExportSource, kind: str, out: Path | None, overwrite: bool) -> Path:
    """Write the run as `kind` to `out`, by default into its own folder, and return the path.

    Raises LeapmpiError for errors that the user can correct; the path is then as it was before.
    """
    member = KINDS.load(kind)
    if out is None:
        # A running run is exported to the same path repeatedly, so overwrite.
        out = source.run.path / FOLDER / member.name
        with _folder_of(out):
            _write(member, source, out, overwrite=True)
    else:
        _write(member, source, out, overwrite)
    return out


def _write(member: ExportFormat, source: ExportSource, out: Path, overwrite: bool) -> None:
    check_place(out, overwrite)
    remove_abandoned(out)
    with written_aside(out, overwrite=overwrite) as aside:
        member.write(source, aside)


@contextmanager
def _folder_of(out: Path) -> Iterator[None]:
    """Create the folder of `out` for the body; remove it if it stays empty."""
    try:
        out.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise explain(error, out.parent) from error
    try:
        yield
    finally:
        with suppress(OSError):
            out.parent.rmdir()
