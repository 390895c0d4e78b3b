"""Lazy tables from a name to the module that implements it.

A kind (partitioner, source, sampler, strategy, model) is one package folder with one file per member.
The table only lists file names, so that `--help` costs no heavy import; plug-ins join by entry points.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from types import ModuleType

from leapmpi.errors import ConfigError, nearest


class Registry:
    """Members of one kind: the modules of a package, plus entry points of group `group`.

    Modules whose names start with an underscore, and those named in `exclude`, are not members.
    A member's public name is its module name with `_` written as `-`.
    """

    def __init__(self, kind: str, package: str, exclude: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.package = package
        self.exclude = exclude
        self.group = package

    def names(self) -> list[str]:
        """All member names, sorted, without importing a member."""
        return sorted({*self._own(), *self._plugins()})

    def load(self, name: str) -> ModuleType:
        """Import and return the module of member `name`.

        Raises ConfigError, with the nearest known name, when there is none.
        """
        if name in (own := self._own()):
            return importlib.import_module(f"{self.package}.{own[name]}")
        if name in (plugins := self._plugins()):
            return plugins[name].load()
        raise ConfigError(f"unknown {self.kind} {name!r}; {nearest(name, self.names())}")

    def _own(self) -> dict[str, str]:
        path = importlib.import_module(self.package).__path__
        modules = (m.name for m in pkgutil.iter_modules(path))
        return {m.replace("_", "-"): m for m in modules if not m.startswith("_") and m not in self.exclude}

    def _plugins(self) -> dict:
        return {point.name: point for point in entry_points(group=self.group)}
