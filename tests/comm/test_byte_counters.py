"""Bytes are counted by kind, rows by place."""

import pytest

from leapmpi.comm.byte_counters import KINDS, ROWS, ByteCounters


def test_bytes_are_counted_by_kind_and_counting_starts_again():
    byte_counters = ByteCounters()
    byte_counters.add_bytes("ids", 8)
    byte_counters.add_bytes("ids", 16)
    byte_counters.add_rows("remote", 3)
    sent, read = byte_counters.take()
    assert sent == dict.fromkeys(KINDS, 0) | {"ids": 24}
    assert read == dict.fromkeys(ROWS, 0) | {"remote": 3}
    assert byte_counters.take() == (dict.fromkeys(KINDS, 0), dict.fromkeys(ROWS, 0))
    with pytest.raises(KeyError):
        byte_counters.add_bytes("gossip", 1)
