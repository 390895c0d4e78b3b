"""Lazy tables from a name to the module that implements it.

A kind (partition method, source, sampler, strategy, model, ...) is one package that holds members only, one module
each. A package whose modules hold several members names these in `SEVERAL`, a dict from member to module. The table
only lists file names, so that `--help` costs no heavy import. Other distributions add members by entry points whose
group is the name of the package.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

from leapmpi.errors import ConfigError, nearest


@dataclass(frozen=True)
class Member:
    """Declaration of a member of a kind, a module's `MEMBER`. Each kind has a sub-class."""


M = TypeVar("M", bound=Member)


class Registry(Generic[M]):
    """Members of one kind: the modules of `package`, plus the entry points of the group of that name.

    A member's public name is its module name with `_` written as `-`. `kind` names the kind in messages, and
    `member` is the class of the `MEMBER` of each module.
    """

    def __init__(self, kind: str, package: str, member: type[M]) -> None:
        self.kind, self.package, self.member = kind, package, member

    def names(self) -> list[str]:
        """Return all member names, sorted, without importing a member."""
        return sorted({*self._modules(), *self._plugins()})

    def load(self, name: str) -> M:
        """Import member `name` and return what it offers; a module of the package wins over a plug-in.

        Raises ConfigError, with the nearest known name, when there is none, and for a module without a `MEMBER`.
        """
        if module := self._modules().get(name):
            return self._member(name, importlib.import_module(f"{self.package}.{module}"))
        if plugin := self._plugins().get(name):
            return self._member(name, plugin.load())
        raise ConfigError(f"unknown {self.kind} {name!r}; {nearest(name, self.names())}")

    def _member(self, name: str, module: ModuleType) -> M:
        found = vars(module).get("MEMBER")
        if not isinstance(found, self.member):
            raise ConfigError(
                f"{self.kind} {name}: {module.__file__} offers no member; write MEMBER = {self.member.__name__}(...)"
            )
        return found

    def _modules(self) -> dict[str, str]:
        package = importlib.import_module(self.package)
        several: dict[str, str] = vars(package).get("SEVERAL", {})
        found = _modules_in(tuple((folder, os.stat(folder).st_mtime_ns) for folder in package.__path__))
        return several | {name: module for name, module in found.items() if module not in several.values()}

    def _plugins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in _entry_points(tuple(sys.path)).select(group=self.package)}


@functools.cache
def _modules_in(folders: tuple[tuple[str, int], ...]) -> dict[str, str]:
    """Return the module of each member in `folders`, each with its time of change: a job asks hundreds of times."""
    paths = [folder for folder, _ in folders]
    return {module.name.replace("_", "-"): module.name for module in pkgutil.iter_modules(paths)}


def plugins_installed() -> bool:
    """Return whether any distribution adds members to a kind of leapmpi."""
    return any(group.partition(".")[0] in ("leapmpi", "data_prep") for group in _entry_points(tuple(sys.path)).groups)


@functools.cache
def _entry_points(path: tuple[str, ...]) -> Any:
    """List those of all distributions on `path`, which is sys.path; reading them takes a few milliseconds."""
    return entry_points()
