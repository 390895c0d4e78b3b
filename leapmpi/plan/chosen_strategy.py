"""The strategy that `--strategy auto` chose, with the forecasts behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from leapmpi.errors import counted
from leapmpi.runs.text import size_text


@dataclass(frozen=True)
class EpochCost:
    """Predicted time of an epoch with one strategy, and the form of its first layer's input."""

    seconds: float
    bytes: float
    remote: str


@dataclass(frozen=True)
class Choice:
    """The strategy that was chosen: by forecasts, or for the reason `why` without any."""

    strategy: str
    why: str = ""
    forecasts: Mapping[str, EpochCost] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why a strategy was not a candidate, by name."""
    iterations: int = 0
    """Number counted."""
    rates: str = ""
    """Origin of the rates."""

    def to_values(self) -> dict[str, Any]:
        """Return plain values for records and checkpoints."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Choice:
        """Read the choice in a record."""
        known = {each.name: values[each.name] for each in fields(cls)}
        return cls(**known | {"forecasts": {name: EpochCost(**each) for name, each in values["forecasts"].items()}})

    def sentence(self) -> str:
        """Describe in one line the choice, and the predictions of the others."""
        if not self.forecasts:
            return f"strategy auto: {self.strategy}, without comparison: {self.why}"
        mine = self.forecasts[self.strategy]
        others = [f"{name} {_text(each)}" for name, each in self.forecasts.items() if name != self.strategy]
        left_out = [f"not {name}: {why}" for name, why in self.left_out.items()]
        return (
            f"strategy auto: {self.strategy}, predicted {_text(mine)}; "
            + "; ".join([", ".join(others), *left_out] if others else left_out)
            + f" (an epoch, by {counted(self.iterations, 'counted iteration')} and {self.rates})"
        )


def _text(cost: EpochCost) -> str:
    return f"{cost.seconds:.3g} s and {size_text(cost.bytes)}"
