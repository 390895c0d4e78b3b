"""Prefetching that does not depend on time."""

from leapmpi.engine.ahead.interleaved_prefetcher import InterleavedPrefetcher

_allow, _go_on = InterleavedPrefetcher._allow, InterleavedPrefetcher._go_on


def prepared_at_once(prefetcher: InterleavedPrefetcher, count: int) -> None:
    """Allow `count` mini-batches, and prepare them before anything else happens: as early as a wait could. Collective.

    Takes the place of `InterleavedPrefetcher._allow`.
    """
    _allow(prefetcher, count)
    _go_on(prefetcher)
