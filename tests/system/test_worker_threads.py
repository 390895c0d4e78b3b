"""What attends to other work between pieces of rows."""

from __future__ import annotations

import sys

from leapmpi.system.worker_threads import attend, in_pieces, leave


class _Work:
    """Work that ends when it is attended to for the first time."""

    def __init__(self, owners: list[_Work]) -> None:
        self.owners = owners
        owners.append(self)
        attend(self.advance)

    def advance(self) -> None:
        leave(self.advance)
        self.owners.remove(self)


def test_work_may_end_while_it_is_attended_to(monkeypatch):
    unraisable, ranges = [], []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    owners: list[_Work] = []
    _Work(owners)
    _Work(owners)
    in_pieces(lambda first, end: ranges.append((first, end)), 0, 300, 100)
    assert not owners
    assert not unraisable
    assert ranges[0] == (0, 100)
    assert ranges[-1][1] == 300
