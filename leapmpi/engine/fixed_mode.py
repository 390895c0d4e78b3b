"""Strategies that deal roots to ranks as `pull` does and come with a way of their own to compute the first layer."""

from __future__ import annotations

from abc import abstractmethod

from leapmpi.engine.first_layer.base import FirstLayerMode
from leapmpi.errors import ConfigError
from leapmpi.strategies.pull import Pull


class FixedModeStrategy(Pull):
    """Base of strategies to which strategy.remote does not apply."""

    @abstractmethod
    def own_mode(self) -> tuple[str, type[FirstLayerMode]]:
        """The strategy's mode, after the name by which records call it."""

    def choose_remote(self) -> tuple[str, FirstLayerMode]:
        """The strategy's own mode. Raises ConfigError when another is asked for, or the model does not suit it."""
        if self.config.remote != "auto":
            raise ConfigError(
                f"strategy.remote: {self.config.name} has its own way to compute the first layer; "
                f"leave out {self.config.remote}"
            )
        name, mode = self.own_mode()
        if reason := mode.refusal(self.ctx.model):
            raise ConfigError(f"strategy: {self.config.name} cannot train this model: {reason}; use leap or pull")
        if self.ctx.sampler.weighted:
            raise ConfigError(
                f"strategy: {self.config.name} sends edges without weights, which this sampler gives them; "
                "use leap or pull, or another --sampler"
            )
        return name, mode(self.ctx)

    @property
    def chooses_remote(self) -> bool:
        """Nothing is left to settle."""
        return False
