"""Code that a user names in a setting, as FILE.py:NAME or PACKAGE.MODULE:NAME: loaded, digested, and blamed by line."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from leapmpi.config.program_imports import complete_torch
from leapmpi.errors import ConfigError, Interrupted, nearest, one_line

_GIVEN: dict[str, Any] = {}
"""Classes and functions that this process was given as objects, the last by each name."""

_FOLDERS: dict[str, str] = {}
"""By working directory of this process: the one that the user's code has changed to."""


def name_given(code: Any) -> str:
    """Return the name by which `load_named` finds the class or function `code` in this process.

    Other processes find it by that name where it is in a module or a file, not in a notebook.
    """
    place = code.__module__
    file = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    if place == "__main__" and file.endswith(".py"):
        place = file
    named = f"{place}:{code.__name__}"
    _GIVEN[named] = code
    return named


@contextmanager
def running_user_code() -> Iterator[None]:
    """Run the body, which calls the user's code, in the working directory to which that code changed before.

    Afterwards the directory is the one of before, in which paths of the command line begin, and standard streams that
    the code has set to None are back.
    """
    streams, folder = (sys.stdout, sys.stderr), _working_directory()
    if folder in _FOLDERS:
        with suppress(OSError):
            os.chdir(_FOLDERS[folder])
    try:
        yield
    finally:
        if folder and (chosen := _working_directory()) != folder:
            _FOLDERS[folder] = chosen
            os.chdir(folder)
        else:
            _FOLDERS.pop(folder, None)
        sys.stdout, sys.stderr = sys.stdout or streams[0], sys.stderr or streams[1]


def _working_directory() -> str:
    """Return the working directory of this process; empty where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def load_named(named: str, flag: str) -> Any:
    """Load the object that `named` names. Runs the file, once in a process. Raises ConfigError, beginning with `flag`.

    Files that stand beside it can be imported by it.
    """
    if named in _GIVEN:
        complete_torch()
        return _GIVEN[named]
    if named.startswith("__main__:"):
        raise ConfigError(
            f"{flag} {named}: the run was given a class of a notebook, which is not known here; define it in this "
            f"notebook and pass it, or write it to a file and name that: {flag} FILE.py:{named.rpartition(':')[2]}"
        )
    return _loaded(named, flag)


@functools.cache
def _loaded(named: str, flag: str) -> Any:
    """Load the object that `named` names from its file or module."""
    complete_torch()
    place, _, name = named.rpartition(":")
    module = _from_file(place, named, flag) if place.endswith(".py") else _imported(place, named, flag)
    if not hasattr(module, name):
        known = [each for each in vars(module) if not each.startswith("_")]
        raise ConfigError(f"{flag} {named}: {place} defines no {name}; {nearest(name, known)}")
    return getattr(module, name)


def _from_file(path: str, named: str, flag: str) -> ModuleType:
    if not Path(path).is_file():
        raise ConfigError(f"{flag} {named}: there is no file {path}")
    # The name of the file need not be that of an importable module.
    name = f"user_code_{Path(path).stem}_{hashlib.blake2b(path.encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    # The name of a file that ends in .py tells how to load it.
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    # Classes find the names in their annotations by the module that they say they are of.
    sys.modules[name] = module
    try:
        with running_user_code():
            spec.loader.exec_module(module)
    except (Interrupted, KeyboardInterrupt):
        raise
    except BaseException as error:
        del sys.modules[name]
        raise ConfigError(f"{flag} {named}: {path} cannot be loaded: {describe_error(error, named)}") from error
    return module


def _imported(place: str, named: str, flag: str) -> ModuleType:
    try:
        with running_user_code():
            return importlib.import_module(place)
    except (Interrupted, KeyboardInterrupt):
        raise
    except BaseException as error:
        pyg = isinstance(error, ModuleNotFoundError) and place.split(".")[0] == "torch_geometric"
        hint = "; pip install 'leapmpi[pyg]'" if pyg else ""
        raise ConfigError(
            f"{flag} {named}: {place} cannot be imported: {describe_error(error, named)}{hint}"
        ) from error


def digest_of(named: str) -> str:
    """Digest the file or module's file that `named` names: blake2b-128, hexadecimal. Empty where there is none."""
    place = named.rpartition(":")[0]
    if place == "__main__":
        return _digest_of_source(_GIVEN.get(named))
    if not place.endswith(".py"):
        spec = importlib.util.find_spec(place)
        place = (spec.origin if spec else None) or ""
    if not Path(place).is_file():
        return ""
    return hashlib.blake2b(Path(place).read_bytes(), digest_size=16).hexdigest()


def _digest_of_source(code: Any) -> str:
    """Digest the source of a class or function of a notebook. Empty where nobody knows it."""
    try:
        return hashlib.blake2b(inspect.getsource(code).encode(), digest_size=16).hexdigest()
    except (OSError, TypeError):
        return ""


def describe_error(error: BaseException, named: str) -> str:
    """Describe `error`: its type, its first line, and the line of the file or module of `named` if it arose there."""
    text = str(error).strip().splitlines()
    sentence = one_line(f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}, at {Path(error.filename or named).name}, line {error.lineno}"
    # The innermost line of the user's own file; of a library called from there only the innermost of all.
    frames = traceback.extract_tb(error.__traceback__)
    place = named.rpartition(":")[0]
    if place.endswith(".py"):
        own = [frame for frame in frames if Path(frame.filename).name == Path(place).name]
    else:
        own = [frame for frame in frames if frame.filename == getattr(sys.modules.get(place), "__file__", None)]
    if not own:
        return sentence
    return f"{sentence}, at {Path(own[-1].filename).name}, line {own[-1].lineno}, in {own[-1].name}"


def arguments_of(function: Any) -> dict[str, inspect.Parameter]:
    """List the parameters of `function` by name, but for *args and **kwargs; empty where they are unknown."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: each for name, each in parameters.items() if each.kind not in kinds}
