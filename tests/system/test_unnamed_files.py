"""Files without a name: on a disk with room for them, and gone with their process."""

import os
import tempfile

import pytest

from leapmpi.errors import ConfigError, ResourceError
from leapmpi.system.unnamed_files import IN_MEMORY, file_system, mapped_file, unnamed_file


def test_a_file_has_its_size_and_no_name(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if file_system(tmp_path) in IN_MEMORY:
        pytest.skip(f"{tmp_path} is in memory")
    handle = unnamed_file(12345, "lists take")
    assert os.fstat(handle).st_size == 12345
    assert os.fstat(handle).st_blocks * 512 >= 12345, "its space is reserved"
    assert not list(tmp_path.iterdir())
    os.close(handle)
    memory = mapped_file(100, "lists take")
    memory[:5] = b"kept!"
    assert memory[:6] == b"kept!\0"


def test_too_small_a_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if file_system(tmp_path) in IN_MEMORY:
        pytest.skip(f"{tmp_path} is in memory")
    with pytest.raises(ResourceError, match=r"lists take 1073741824\.0 GiB in a file, but .* cannot take it"):
        unnamed_file(1 << 60, "lists take")
    assert not list(tmp_path.iterdir())


def test_files_in_memory_are_refused(monkeypatch):
    if file_system("/dev/shm") != "tmpfs":
        pytest.skip("/dev/shm is not in memory here")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    with pytest.raises(ConfigError, match="/dev/shm is in memory; set TMPDIR to a folder on a disk"):
        unnamed_file(10, "lists take")
