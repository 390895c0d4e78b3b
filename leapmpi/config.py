"""What a run is told: frozen dataclasses, filled from defaults, then a TOML file, then `--set`, then flags.

Each field is declared once, here; its flag, its check and its help come from the declaration.
An unknown section or key is an error that names the nearest known one.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from leapmpi.errors import ConfigError, nearest

ALL_NEIGHBOURS = -1
"""The fan-out that takes every neighbour."""

_LARGEST = 2**63
"""Whole numbers are below it, as they are in TOML and in 64-bit arrays."""


def setting(default: Any, help: str, **limits: Any) -> Any:
    """A config field. Limits: `choices`, `least` (>=), `above` (>), `below` (<), `flag` (name of the flag)."""
    return field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class ModelConfig:
    """Which model is trained. The number of layers is the number of fan-outs."""

    name: str = setting("sage", "model", flag="model", registry="leapmpi.nn.models")
    hidden: int = setting(128, "width of the hidden layers", least=1)
    heads: int = setting(4, "attention heads (gat); divides hidden", least=1)
    dropout: float = setting(0.5, "share of hidden values dropped in training", least=0, below=1)
    input_dropout: float = setting(0.0, "share of input features dropped in training", least=0, below=1)
    attention_dropout: float = setting(0.0, "share of attention weights dropped in training (gat)", least=0, below=1)
    norm: str = setting("none", "normalisation of hidden rows", choices=("none", "layer"))
    residual: bool = setting(False, "add each layer's input to its output")


@dataclass(frozen=True)
class SamplingConfig:
    """How neighbourhoods are drawn."""

    fanout: tuple[int, ...] = setting(
        (10, 10), "neighbours drawn per hop, from the root outward; 'all' takes every one", flag="fanout"
    )


@dataclass(frozen=True)
class StrategyConfig:
    """Where each root of a batch is trained, and what travels."""

    name: str = setting("leap", "strategy", flag="strategy", registry="leapmpi.strategies")
    time_steps: str = setting("auto", "steps an iteration is cut into: auto, 1, or the number of ranks (N)")
    remote: str = setting(
        "raw",
        "what crosses ranks for the first layer: raw rows, projected rows, partial sums",
        choices=("raw", "projected", "partial", "auto"),
    )
    migrate: str = setting("ring", "at N time steps: models travel (ring) or stay (none)", choices=("ring", "none"))


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation."""

    epochs: int = setting(10, "passes over the training vertices", least=1)
    batch_size: int = setting(1024, "roots per optimizer step, over all ranks", least=1)
    lr: float = setting(0.003, "learning rate", above=0)
    optimizer: str = setting("adam", "optimizer", choices=("adam", "adamw", "sgd"))
    momentum: float = setting(0.0, "momentum (sgd)", least=0, below=1)
    weight_decay: float = setting(0.0, "weight decay", least=0)
    lr_schedule: str = setting("constant", "learning rate over time", choices=("constant", "cosine"))
    warmup_epochs: float = setting(0.0, "epochs of linear warm-up", least=0)
    clip_norm: float = setting(0.0, "largest gradient norm; 0 does not clip", least=0)
    seed: int = setting(0, "seed of everything that is drawn", least=0)
    dtype: str = setting("float32", "type of parameters and activations", choices=("float32", "float64"))


@dataclass(frozen=True)
class EvaluateConfig:
    """Scoring on the validation and test vertices."""

    every: int = setting(1, "epochs between evaluations; 0 evaluates after the last only", least=0, flag="eval-every")
    fanout: tuple[int, ...] = setting((), "fan-outs of evaluation; as in training when not given", flag="eval-fanout")
    batch_size: int = setting(4096, "vertices a rank evaluates at once", least=1, flag="eval-batch-size")
    metric: str = setting(
        "auto",
        "what is scored; auto: accuracy, or f1-micro when multi-label",
        choices=("auto", "accuracy", "f1-micro", "roc-auc"),
    )


@dataclass(frozen=True)
class RunConfig:
    """Where a run is recorded and what it runs on."""

    folder: str = setting("", "run folder; runs/DATE-N when not given", flag="run")
    overwrite: bool = setting(False, "replace an unfinished run in the folder")
    log_level: str = setting("info", "least severity shown", choices=("debug", "info", "warning", "error"))
    device: str = setting("auto", "where models are trained", choices=("auto", "cpu", "cuda"))
    mpi_device_path: str = setting(
        "host", "GPU data reach MPI by pinned host memory, or directly", choices=("host", "cuda", "auto")
    )
    threads: int = setting(0, "threads per rank; 0 shares the cores among the ranks of a node", least=0, below=1025)
    verify: str = setting(
        "auto",
        "what is checked while loading: auto (features up to 1 GiB a rank), all, none",
        choices=("auto", "all", "none"),
    )


@dataclass(frozen=True)
class Config:
    """Everything `leapmpi.train` needs: the dataset folder and one part per concern."""

    data: str = setting("", "dataset folder")
    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    strategy: StrategyConfig = field(default_factory=StrategyConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], origin: str = "config") -> Config:
        """Check `values` (nested as in TOML, or with dotted keys) and build a Config.

        Raises ConfigError naming `origin` and the key for unknown keys and unusable values.
        """
        return cls().replaced(values, origin)

    def replaced(self, values: Mapping[str, Any], origin: str = "config") -> Config:
        """A copy with `values` put in, checked as by `from_values`."""
        config = self.assigned(values, origin)
        config.check()
        return config

    def assigned(self, values: Mapping[str, Any], origin: str = "config") -> Config:
        """A copy with `values` put in, each checked alone; `check` is due when all sources have been heard."""
        config = self
        for key, value in _flattened(values).items():
            config = config._with(key, value, origin)
        return config

    def to_values(self) -> dict[str, Any]:
        """The whole config as nested plain values, ready for TOML or JSON."""
        return dataclasses.asdict(self)

    @property
    def evaluation_fanout(self) -> tuple[int, ...]:
        """Fan-outs of evaluation, those of training where none are given."""
        return self.evaluate.fanout or self.sampling.fanout

    def _with(self, key: str, value: Any, origin: str) -> Config:
        known = dict(fields())
        if key not in known:
            raise ConfigError(f"{origin}: {_about_unknown(key, known)}")
        checked = parse_value(known[key], value, f"{origin}: {key}")
        section, _, name = key.rpartition(".")
        if not section:
            return dataclasses.replace(self, **{name: checked})
        return dataclasses.replace(self, **{section: dataclasses.replace(getattr(self, section), **{name: checked})})

    def check(self) -> None:
        """Raise ConfigError where values do not fit together."""
        if self.model.name == "gat" and self.model.hidden % self.model.heads:
            raise ConfigError(f"model.hidden ({self.model.hidden}) must be a multiple of heads ({self.model.heads})")
        given, layers = len(self.evaluate.fanout), len(self.sampling.fanout)
        if given not in (0, layers):
            raise ConfigError(
                f"evaluate.fanout has a length of {given}, but the model's number of layers is {layers}; "
                "give one fan-out per layer"
            )


@dataclass(frozen=True)
class Setting:
    """One field of the config: its dotted key, type, default and declared limits."""

    key: str
    type: type
    default: Any
    limits: Mapping[str, Any]

    @property
    def flag(self) -> str:
        """The command-line flag, without dashes."""
        return self.limits.get("flag", self.key.rpartition(".")[2].replace("_", "-"))

    def choices(self) -> tuple[str, ...]:
        """The accepted values of a choice, empty for free values."""
        if package := self.limits.get("registry"):
            from leapmpi.registry import Registry

            return tuple(Registry(self.limits["help"], package).names())
        return self.limits.get("choices", ())


def fields() -> Iterator[tuple[str, Setting]]:
    """All settings by dotted key, in order of declaration."""
    sections = get_type_hints(Config)
    for top in dataclasses.fields(Config):
        section = sections[top.name]
        if not dataclasses.is_dataclass(section):
            yield top.name, Setting(top.name, section, top.default, top.metadata)
            continue
        types = get_type_hints(section)
        for each in dataclasses.fields(section):
            key = f"{top.name}.{each.name}"
            yield key, Setting(key, types[each.name], each.default, each.metadata)


def parse_value(setting: Setting, value: Any, where: str) -> Any:
    """`value`, given as text or a TOML value, as the type of `setting`. Raises ConfigError."""
    if setting.type is bool:
        checked = _as_bool(value, where)
    elif setting.type in (int, float):
        checked = _as_number(setting.type, value, where)
    elif setting.type is str:
        checked = _as_text(value, where)
    else:
        checked = parse_fanout(value, where)
        if not checked and setting.default:
            raise ConfigError(f"{where}: no fan-out given; give one per layer, such as 10,10")
    if (choices := setting.choices()) and checked not in choices:
        raise ConfigError(
            f"{where}: unknown {setting.key.replace('.name', '')} {checked!r}; {nearest(checked, choices)}"
        )
    if setting.type in (int, float):
        _check_limits(setting.limits, checked, where)
    if setting.key == "strategy.time_steps":
        _check_time_steps(checked, where)
    return checked


def parse_fanout(value: Any, where: str) -> tuple[int, ...]:
    """'10,10', 'all', [10, "all"] or 10 as a tuple with -1 for 'all'. Raises ConfigError."""
    items = value.split(",") if isinstance(value, str) else value
    items = list(items) if isinstance(items, (list, tuple)) else [items]
    return tuple(_one_fanout(item, where) for item in items if item != "" or len(items) > 1)


def _one_fanout(item: Any, where: str) -> int:
    if isinstance(item, str):
        item = item.strip()
    if item in ("all", ALL_NEIGHBOURS) and not isinstance(item, bool):
        return ALL_NEIGHBOURS
    text = str(item)
    if isinstance(item, bool) or not text.isascii() or not text.isdigit() or int(text) < 1 or int(text) >= 2**31:
        raise ConfigError(
            f"{where}: {text!r} is no fan-out; give whole numbers from 1 to 2**31 - 1 or 'all', such as 10,10"
        )
    return int(text)


def _as_bool(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "yes", "1", "false", "no", "0"):
        return str(value).lower() in ("true", "yes", "1")
    raise ConfigError(f"{where}: {value!r} is neither true nor false")


def _as_number(kind: type, value: Any, where: str) -> int | float:
    noun = "a whole number" if kind is int else "a number"
    try:
        if isinstance(value, bool) or (kind is int and isinstance(value, float)):
            raise ValueError
        number = kind(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: {value!r} is not {noun}") from None
    except OverflowError:
        number = math.inf
    if isinstance(number, float) and not math.isfinite(number):
        raise ConfigError(f"{where}: {value!r} is not a finite number")
    return number


def _as_text(value: Any, where: str) -> str:
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise ConfigError(f"{where}: {value!r} is not text")
    text = str(value)
    if "\0" in text or text != text.encode("utf-8", "replace").decode():
        raise ConfigError(f"{where}: {text!r} holds characters that are no text; use UTF-8 without zero bytes")
    return text


def _check_limits(limits: Mapping[str, Any], value: float, where: str) -> None:
    if "least" in limits and value < limits["least"]:
        raise ConfigError(f"{where}: {value} is too small; the least is {limits['least']}")
    if "above" in limits and value <= limits["above"]:
        raise ConfigError(f"{where}: {value} is too small; it must be greater than {limits['above']}")
    below = limits.get("below", _LARGEST if isinstance(value, int) else math.inf)
    if value >= below:
        raise ConfigError(f"{where}: {value} is too large; it must be less than {below}")


def _check_time_steps(value: str, where: str) -> None:
    if value not in ("auto", "N") and not (value.isascii() and value.isdigit() and int(value) >= 1):
        raise ConfigError(f"{where}: {value!r} is no number of time steps; give auto, 1 or the number of ranks")


def _about_unknown(key: str, known: Mapping[str, Setting]) -> str:
    """What to say of a key that is no setting: a section, a setting without its section, or an unknown name."""
    if any(name.startswith(f"{key}.") for name in known):
        inside = [name for name in known if name.startswith(f"{key}.")]
        return f"{key} is a section, not a value; set one of its keys: {', '.join(inside)}"
    same_name = [name for name in known if name.rpartition(".")[2] == key]
    return f"unknown key {key!r}; " + (f"did you mean {same_name[0]!r}?" if same_name else nearest(key, known))


def _flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flattened(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values in a TOML file. Raises ConfigError when it is missing or broken."""
    try:
        with open(path, encoding="utf-8") as file:
            return tomllib.loads(file.read())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a valid TOML file: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not a valid TOML file: its values are nested too deeply") from None
    except OSError as error:
        raise ConfigError(f"{path}: the config file cannot be read ({error.strerror})") from None


def parse_assignment(text: str) -> tuple[str, str]:
    """The key and value of `--set key=value`. Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: write it as key=value, such as train.lr=0.01")
    return key.strip(), value.strip()


def to_toml(config: Config) -> str:
    """The config as TOML that `read_toml` reads back to the same Config."""
    values = config.to_values()
    lines = [f"data = {_toml_value(values.pop('data'))}"]
    for section, entries in values.items():
        lines += ["", f"[{section}]", *(f"{name} = {_toml_value(value)}" for name, value in entries.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join('"all"' if item == ALL_NEIGHBOURS else str(item) for item in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'
    return repr(value)
