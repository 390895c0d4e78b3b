"""Configs as TOML. The standard library reads it, but has no writer."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leapmpi.config.setting import ALL_NEIGHBOURS
from leapmpi.errors import ConfigError
from leapmpi.system.regular_files import read_text

if TYPE_CHECKING:
    from leapmpi.config.schema import Config


_MOST = 10_000_000
"""The longest config file that is read, in characters."""


def read_toml(path: str | Path, regular: bool = False) -> dict[str, Any]:
    """Read the values in a TOML file, which may be a pipe unless it must be a `regular` file.

    Raises ConfigError when it is missing or broken.
    """
    try:
        if regular:
            return tomllib.loads(read_text(path))
        # A pipe is fine here, as in --config <(command); a device may never end. Windows begins a text with a mark.
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(_MOST + 1)
        if len(text) > _MOST:
            raise ConfigError(f"{path}: longer than {_MOST:,} characters, which no config file is")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a valid TOML file: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not a valid TOML file: its values are nested too deeply") from None
    except ValueError:
        raise ConfigError(f"{path}: not a valid TOML file: a number in it has thousands of digits") from None
    except OSError as error:
        raise ConfigError(f"{path}: the config file cannot be read ({error.strerror})") from None


def to_toml(config: Config) -> str:
    """Format the config as TOML that `read_toml` reads back to the same Config."""
    values = config.to_values()
    lines = [f"data = {_toml_value(values.pop('data'))}"]
    for section, entries in values.items():
        lines += ["", f"[{section}]", *(f"{name} = {_toml_value(value)}" for name, value in entries.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple):
        value = ["all" if item == ALL_NEIGHBOURS else item for item in value]
    # Values are written as in JSON, which leaves only one control character as it is: DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
