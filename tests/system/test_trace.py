"""The timeline of a rank."""

import os

import pytest

from leapmpi.errors import DataError, ResourceError
from leapmpi.system.phase_timers import PhaseTimers
from leapmpi.system.trace import record_timeline


def test_a_pipe_in_place_of_the_file_is_refused_and_not_waited_for(tmp_path):
    path = tmp_path / "timeline-rank-0.json"
    os.mkfifo(path)
    with (
        pytest.raises((DataError, ResourceError), match=path.name),
        record_timeline(path, PhaseTimers(), 0, "rank 0/1"),
    ):
        pass
