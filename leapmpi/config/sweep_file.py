"""Sweep files: a config with lists of values, read as a list of runs.

    data = "data"                   # any keys of the config, shared by all runs
    train.epochs = 20

    [sweep]                         # every combination of these values ...
    train.lr = [0.003, 0.01]
    train.seed = [0, 1, 2]

    [[point]]                       # ... with each of these sets of values, where there are any
    strategy.name = "pull"
    [[point]]
    strategy.name = "leap"
    strategy.time_steps = "N"

Runs are numbered from 0; the last key of [sweep] changes fastest, the points slowest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leapmpi.config.schema import Config
from leapmpi.config.sections import flattened
from leapmpi.config.setting import names_code
from leapmpi.config.toml import read_toml
from leapmpi.errors import ConfigError

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Sweep:
    """A sweep file, read: `base` holds the values that all runs share, `points` those of each run, by dotted key."""

    path: Path
    base: dict[str, Any]
    points: tuple[dict[str, Any], ...]

    def config(self, index: int, shared: Config, folder: Path) -> Config:
        """Build the config of run `index`: `shared` with the values of the run, recorded in a subfolder of `folder`.

        Raises ConfigError, naming the file, for values that cannot be used, code to be run among them, and for an
        index out of range.
        """
        if not 0 <= index < len(self.points):
            raise ConfigError(f"{self.path}: no run {index}; its runs are 0 to {len(self.points) - 1}")
        # A sweep file may come from others, so it may not name code to run.
        for key, flag in (("sampling.sampler", "sampler"), ("model.name", "model")):
            if names_code(str(self.points[index].get(key, ""))):
                raise ConfigError(
                    f"{self.path}, run {index}: code runs only when --{flag} names it; leave it out of the file"
                )
        return shared.replaced(
            {**self.points[index], "run.folder": str(folder / self.name(index))}, f"{self.path}, run {index}"
        )

    def name(self, index: int) -> str:
        """Return the name of the run's folder: its number and its values, such as '03-lr=0.01-seed=1'."""
        width = len(str(len(self.points) - 1))
        values = (f"{key.rpartition('.')[2]}={_short(value)}" for key, value in self.points[index].items())
        return re.sub(r"[^\w.,=+-]", "_", "-".join((f"{index:0{width}}", *values)))[:_LONGEST_NAME]


def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep file. Raises ConfigError for one that is missing, broken, or sweeps nothing."""
    values = read_toml(path)
    product = values.pop("sweep", {})
    points = values.pop("point", [])

    # The shape of the file.
    tables = isinstance(points, list) and all(isinstance(point, Mapping) for point in points)
    if not isinstance(product, Mapping) or not tables:
        raise ConfigError(f"{path}: write swept keys under [sweep], and single runs as [[point]] tables")
    if not product and not points:
        raise ConfigError(f"{path}: nothing to sweep; give lists of values under [sweep], or [[point]] tables")

    # The values of each key under [sweep].
    axes = flattened(product)
    for key, choices in axes.items():
        if not isinstance(choices, list) or not choices:
            raise ConfigError(f"{path}: [sweep] {key}: give a list of values, such as [1, 2], not {choices!r}")

    # Every combination of them, with each [[point]].
    sets = [flattened(point) for point in points] or [{}]
    for key in axes:
        if any(key in each for each in sets):
            raise ConfigError(f"{path}: {key} is both under [sweep] and in a [[point]]; keep one of them")
    runs = [
        {**point, **dict(zip(axes, combination, strict=True))}
        for point in sets
        for combination in itertools.product(*axes.values())
    ]
    sweep = Sweep(Path(path), flattened(values), tuple(runs))
    _check(sweep)
    return sweep


def _check(sweep: Sweep) -> None:
    """Raise ConfigError for a run whose values cannot be used."""
    shared = Config().assigned(sweep.base, str(sweep.path))
    for index in range(len(sweep.points)):
        if "run.folder" in sweep.points[index]:
            raise ConfigError(f"{sweep.path}: run.folder cannot be swept: each run gets a folder of its own")
        sweep.config(index, shared, Path())


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else Path(str(value)).name
