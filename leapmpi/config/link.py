"""The settings of tasks whose roots are edges: link prediction (`--task link`), classes of edges (`edge-class`)."""

from __future__ import annotations

from dataclasses import dataclass

from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError

ALL, AUTO, GIVEN = "all", "auto", "given"


def check_negatives(text: str, where: str) -> None:
    """Raise ConfigError unless `text` is 'all', 'given', 'auto' or a number of negatives."""
    if text not in (ALL, AUTO, GIVEN) and not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**31):
        raise ConfigError(f"{where}: {text!r} is no number of negatives; give one such as 100, all or given")


@dataclass(frozen=True)
class LinkConfig:
    """How edges are scored, and against which negatives."""

    scorer: str = setting(
        "auto",
        "how an edge is scored from the embeddings of its ends; auto: dot for links, mlp for classes of edges",
        registry="leapmpi.nn.scorers",
        also=("auto",),
    )
    target_edges: str = setting(
        "auto",
        "whether message passing sees the edges of a batch; auto: leave-out for links, keep for classes of edges",
        choices=("auto", "keep", "leave-out"),
    )
    negatives: str = setting(
        "uniform", "how destinations of negatives are drawn", registry="leapmpi.sampling.negatives"
    )
    negatives_per_edge: int = setting(1, "negatives of each edge in training", least=1, below=2**20)
    eval_negatives: str = setting(
        AUTO,
        "what an edge is ranked against in evaluation: so many drawn destinations, all, or the negatives given by the "
        "source; auto: given where there are some, else 100",
        metavar="all|given|N",
        check=check_negatives,
    )
