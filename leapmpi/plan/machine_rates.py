"""Machine rates: documented constants, or rates kept by `leapmpi doctor --measure`.

Choices before training depend on these and on counts, never on clocks, so that the same command on the same data gives
the same bits.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from leapmpi.config.plain_values import an_object, parsed
from leapmpi.errors import ConfigError, counted
from leapmpi.system.atomic_files import explain, written_aside
from leapmpi.system.regular_files import read_text
from leapmpi.system.stale_files import user_cache


@dataclass(frozen=True)
class MachineRates:
    """Seconds per unit on the slowest rank.

    The defaults are the documented constants: one core of a server processor of 2020, and links of 8 Gbit/s a rank.
    """

    multiply_add: float = 2.5e-11
    """Seconds of a multiply-add inside a matrix product, the unit of `Layer.costs`."""
    step: float = 2e-3
    """Fixed seconds of a time step: forward and backward of a model on a few vertices."""
    collective: float = 5e-5
    """Seconds of a collective operation, without its bytes."""
    byte: float = 1e-9
    """Seconds of a byte that a rank sends or receives."""

    def to_values(self) -> dict[str, float]:
        """Return plain values, for files and records."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: Any) -> MachineRates:
        """Return the rates in `values`. Raises ConfigError if one is missing, or not a positive number."""
        try:
            found = {each.name: float(values[each.name]) for each in fields(cls)}
        except (KeyError, TypeError, ValueError, OverflowError):
            found = {}
        if not found or not all(math.isfinite(seconds) and seconds > 0 for seconds in found.values()):
            raise ConfigError("it holds no rates of a machine")
        return cls(**found)


DOCUMENTED = MachineRates()


def processor_name() -> str:
    """Return the processor model as Linux reports it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def rates_file() -> Path:
    """Return the file of kept rates, in the user's cache."""
    return user_cache() / "rates.json"


def machine_key(processor: str, mpi: str, ranks: int, nodes: int) -> str:
    """Return the key of kept rates: processor, MPI library, numbers of ranks and nodes."""
    return f"{processor}; {mpi}; {counted(ranks, 'rank')} on {counted(nodes, 'node')}"


def kept_rates(key: str) -> MachineRates | None:
    """Return the rates kept under `key`; None if there are none.

    Raises ConfigError with a remedy if the file is damaged.
    """
    values = _kept().get(key)
    if values is None:
        return None
    try:
        return MachineRates.from_values(values)
    except ConfigError as error:
        raise _damaged(f"{error} under {key!r}") from None


def keep_rates(key: str, rates: MachineRates, about: Mapping[str, Any]) -> Path:
    """Keep `rates` under `key` with facts `about` them, replacing earlier ones; return the file.

    Raises DataError or ResourceError if the file cannot be written.
    """
    try:
        known = _kept()
    except ConfigError:
        # A damaged file is replaced: measuring again must be able to mend it.
        known = {}
    path = rates_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain(error, path) from error
    text = json.dumps({**known, key: {**rates.to_values(), **about}}, indent=1, sort_keys=True)
    with written_aside(path, overwrite=True) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
    return path


def _kept() -> dict[str, Any]:
    """Return all kept rates by key. Raises ConfigError for a file with other contents."""
    path = rates_file()
    try:
        found: dict[str, Any] = parsed(read_text(path), an_object) if path.is_file() else {}
    except OSError as error:
        raise _damaged(error.strerror or str(error)) from None
    except ValueError as error:
        raise _damaged(str(error)) from None
    return found


def _damaged(why: str) -> ConfigError:
    return ConfigError(f"{rates_file()}: {why}; remove the file, or measure again with leapmpi doctor --measure")
