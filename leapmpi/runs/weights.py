"""Weights files: parameters of a model by name, and plain values about them (epoch, model, dataset)."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.config.plain_values import Schema, an_object
from leapmpi.dataset.hdf5.named_arrays import read_named_arrays, write_named_arrays
from leapmpi.dataset.hdf5.names import WEIGHTS_FORMAT
from leapmpi.errors import ConfigError, DataError
from leapmpi.runs.epoch_numbers import FROM_ZERO, renumbered
from leapmpi.runs.file_names import CONFIG, WEIGHTS_FINAL, weights_file
from leapmpi.system.atomic_files import written_aside

_PARAMETERS = "parameters"

_SCHEMA = 2
"""Version of the plain values."""


def weights_place(folder: Path, which: str) -> Path:
    """Return the path of the weights `which`: `best` or `final` of the run in `folder`, or a file of weights. Local.

    Raises ConfigError for any other value.
    """
    if which in ("best", "final"):
        return folder / weights_file(which)
    if not which.endswith(".h5"):
        raise ConfigError(f"--weights {which}: expected best, final, or a file of weights (.h5)")
    return Path(which)


def write_weights(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write weights as HDF5, with `about` (plain values) as JSON. On an error `path` stays as it was.

    `about` counts epochs from 0, the file from 1.
    """
    with written_aside(path, overwrite=True) as aside:
        write_named_arrays(aside, WEIGHTS_FORMAT, _PARAMETERS, arrays, {**renumbered(about), "schema": _SCHEMA})


def _how_to_get_it(path: Path) -> str:
    """Return what writes the weights `path`, if its folder holds a run."""
    if not (path.parent / CONFIG).is_file():
        return ""
    when = "when the run ends" if path.name == WEIGHTS_FINAL else "when an epoch is scored"
    return f"; it is written {when}, and leapmpi train --run {shlex.quote(str(path.parent))} continues the run"


def read_weights(
    path: Path, schema: Schema = an_object, mapped_names: Collection[str] = ()
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and plain values written by `write_weights`; the values fit `schema`.

    Arrays called `mapped_names` stay in the file, read-only.

    Raises DataError for a missing, foreign or damaged file.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such weights file{_how_to_get_it(path)}")
    arrays, about = read_named_arrays(path, WEIGHTS_FORMAT, _PARAMETERS, ("<f4", "<f8", "<i8"), schema, mapped_names)
    return arrays, about if about.pop("schema", FROM_ZERO) == FROM_ZERO else renumbered(about, -1)
