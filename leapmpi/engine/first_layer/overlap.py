"""Rows of the first layer that a rank computes, for others and for itself, and how they learn.

Answers are wanted first, so that they travel while own rows are computed; own gradients are there first, so that own
rows learn while those of the answers travel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from leapmpi.nn.gradient import pass_back


class ComputedRows(Protocol):
    """Differentiable rows; its methods are called once each, in this order. Local."""

    answers: Any
    """float[answers, width]: what others asked for."""

    def own(self) -> Any:
        """float[own rows, width]: what is added up here."""

    def learn_own(self, gradient: Any) -> None:
        """Pass on the gradient of own rows."""

    def learn_answers(self, gradient: Any) -> None:
        """Pass on the gradient of the answers."""


class FusedRows:
    """Own rows and answers from one computation: `rows` holds `own` of its own, then the answers."""

    def __init__(self, rows: Any, own: int) -> None:
        self._rows, self._count = rows, own
        self.answers = rows[own:]

    def own(self) -> Any:
        """The first rows."""
        return self._rows[: self._count]

    def learn_own(self, gradient: Any) -> None:
        """Nothing yet: what both come from is gone through once."""
        self._gradient = gradient

    def learn_answers(self, gradient: Any) -> None:
        """Pass on both gradients."""
        pass_back(self._rows, torch.cat([self._gradient, gradient]))


class OverlappedRows:
    """Own rows are computed by `own` when they are wanted, and learn by themselves."""

    def __init__(self, answers: Any, own: Callable[[], Any]) -> None:
        self.answers, self._compute = answers, own

    def own(self) -> Any:
        """Compute them."""
        self._own = self._compute()
        return self._own

    def learn_own(self, gradient: Any) -> None:
        """Pass it on at once."""
        pass_back(self._own, gradient)

    def learn_answers(self, gradient: Any) -> None:
        """Pass it on."""
        pass_back(self.answers, gradient)
