"""Fetching learned rows: as other rows, but what training reads is noted, so that gradients find their way home."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.row_exchange import RowExchange


class LearnedFetcher(FeatureFetcher):
    """Fetches rows of a LearnedShard. Training sets `learned`; a forecast reads no row."""

    @cached_property
    def returned_row_bytes(self) -> int:  # type: ignore[override]
        """Bytes of the gradient of a remote row: those of the row."""
        return self.shard.row_bytes

    def prepare(self, ids: np.ndarray, scattered: bool = False, learns: bool = False) -> RowExchange:
        """Do as for other rows, copied; with `learns` note what an iteration of training reads."""
        exchange = super().prepare(ids)
        if learns:
            exchange.result_of = partial(self._noted, exchange, exchange.result_of)
        return exchange

    def count_returns(self, exchange: RowExchange) -> None:
        assert exchange.requested is not None, "the fetcher made it"
        request, _, _ = exchange.requested
        self.network.count("row gradients", request.remote_counts, self.returned_row_bytes)

    def _noted(self, exchange: RowExchange, result_of: Any, arrived: Any) -> Tensor:
        rows: Tensor = result_of(arrived)
        assert self.learned is not None, "a job trains"
        assert exchange.requested is not None, "the fetcher made it"
        self.learned.fetched(*exchange.requested, rows)
        return rows

    def local(self, ids: np.ndarray, scattered: bool = False) -> Tensor:
        """As that of other rows; noted where gradients are computed."""
        rows = super().local(ids)
        assert isinstance(rows, Tensor), "learned rows are stored dense"
        if self.learned is not None and torch.is_grad_enabled():
            self.learned.read(ids, rows)
        return rows
