"""The settings of tasks whose roots are edges: link prediction (`--task link`), classes of edges (`edge-class`)."""

from __future__ import annotations

from dataclasses import dataclass

from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError

ALL, AUTO, GIVEN = "all", "auto", "given"

LOSSES = ("auto", "mse", "mae", "binary", "cross-entropy", "margin", "self-adversarial")
"""Losses by name: two of regressions, then those of links; cross-entropy suits knowledge graphs."""


def check_negatives(text: str, where: str) -> None:
    """Raise ConfigError unless `text` is 'all', 'given', 'auto' or a number of negatives."""
    if text not in (ALL, AUTO, GIVEN) and not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**31):
        raise ConfigError(f"{where}: {text!r} is not a number of negatives; give one such as 100, all or given")


@dataclass(frozen=True)
class LinkConfig:
    """Scoring of edges, and the negatives to score against."""

    scorer: str = setting(
        "auto",
        "scorer of an edge by the embeddings of its ends; auto: dot for links, mlp for classes of edges",
        registry="leapmpi.nn.scorers",
        also=("auto",),
    )
    target_edges: str = setting(
        "auto",
        "whether message passing sees the edges of a batch; auto: leave-out for links, keep for classes of edges",
        choices=("auto", "keep", "leave-out"),
    )
    negatives: str = setting(
        "uniform",
        "negatives of edges in training; hard:FILE: those of a text file of edges that are false",
        registry="leapmpi.sampling.negatives",
        with_file="hard",
    )
    negatives_per_edge: int = setting(1, "negatives of each edge in training", least=1, below=2**20)
    eval_negatives: str = setting(
        AUTO,
        "negatives of an edge in evaluation: a number of drawn destinations, all, or those given by the "
        "source; auto: given if there are any, else 100",
        metavar="all|given|N",
        check=check_negatives,
    )

    @property
    def negatives_and_file(self) -> tuple[str, str]:
        """The name of the negative sampler, and the file of `hard:FILE`, empty without one."""
        name, _, file = self.negatives.partition(":")
        return name, file
