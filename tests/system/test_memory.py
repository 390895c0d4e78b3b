"""Memory of this process: the peak, and when the system is made to walk through its pages."""

from pathlib import Path
from types import SimpleNamespace

from leapmpi.system import memory


def test_pages_are_walked_through_only_when_the_peak_has_grown(monkeypatch):
    reads, peak = [], SimpleNamespace(ru_maxrss=1000)
    monkeypatch.setattr(memory.resource, "getrusage", lambda who: peak)
    monkeypatch.setattr(
        Path, "read_text", lambda path: reads.append(path) or f"Rss: {900 + 100 * len(reads)} kB\nPss: 900 kB\n"
    )
    memory._less_shared.cache_clear()
    assert [memory.peak_bytes(), memory.peak_bytes()] == [900 * 1024] * 2
    peak.ru_maxrss = 2000
    assert memory.peak_bytes() == 1800 * 1024
    assert reads == [Path("/proc/self/smaps_rollup")] * 2
    memory._less_shared.cache_clear()
