"""The settings of link prediction (`--task link`)."""

from __future__ import annotations

from dataclasses import dataclass

from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError


def check_negatives(text: str, where: str) -> None:
    """Raise ConfigError unless `text` is 'all' or a number of negatives."""
    if text != "all" and not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**31):
        raise ConfigError(f"{where}: {text!r} is no number of negatives; give one such as 100, or all")


@dataclass(frozen=True)
class LinkConfig:
    """How edges are scored, and against which negatives."""

    scorer: str = setting("dot", "how an edge is scored from the embeddings of its ends", registry="leapmpi.nn.scorers")
    negatives: str = setting(
        "uniform", "how destinations of negatives are drawn", registry="leapmpi.sampling.negatives"
    )
    negatives_per_edge: int = setting(1, "negatives of each edge in training", least=1, below=2**20)
    negatives_at: str = setting(
        "any",
        "where negatives are drawn: among all vertices, or those at home with the edge's source, which makes results "
        "depend on the partition",
        choices=("any", "home"),
    )
    eval_negatives: str = setting(
        "100",
        "destinations that an edge is ranked against in evaluation: so many drawn ones, or all",
        metavar="all|N",
        check=check_negatives,
    )
