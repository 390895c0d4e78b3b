"""Which remote mode serves: the one asked for, or the one that moves the fewest bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.registry import Registry

if TYPE_CHECKING:
    from leapmpi.remote._mode import RemoteMode
    from leapmpi.strategies._iteration import Iteration, Surroundings

MODES = ("partial", "raw", "projected")
"""Equal bytes go to the first of these."""


def mode_class(name: str) -> type[RemoteMode]:
    """The class of the remote mode called `name`. Raises ConfigError for an unknown one."""
    return Registry("remote mode", "leapmpi.remote").load(name).MODE


def remote_mode(name: str, at: Surroundings) -> RemoteMode:
    """The remote mode called `name`. Raises ConfigError for one that cannot serve the model."""
    mode = mode_class(name)
    if reason := mode.refusal(at.model):
        raise ConfigError(f"strategy.remote: {name} cannot serve this model: {reason}; use raw or auto")
    return mode(at)


def fewest_bytes(work: Iteration, at: Surroundings) -> tuple[str, dict[str, int]]:
    """The mode that moves the fewest bytes for `work`, and the bytes over all ranks by mode. Collective.

    Counted from blocks, not from clocks, so that a repeated run chooses the same.
    """
    modes = [name for name in MODES if not mode_class(name).refusal(at.model)]
    mine = [remote_mode(name, at).predicted_bytes(work) for name in modes]
    total = at.wire.gather_rows(np.array(mine, np.int64)).sum(axis=0)
    return modes[int(total.argmin())], dict(zip(modes, total.tolist(), strict=True))
