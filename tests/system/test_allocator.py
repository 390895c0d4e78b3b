"""Freed memory that stays with the process, and objects that garbage collection leaves alone."""

import gc
import subprocess
import sys
import weakref
from contextlib import suppress

import pytest

from leapmpi.system.allocator import set_aside_lasting_objects, take_back_lasting_objects, without_collection

SCRIPT = """
import resource, sys
import numpy as np
from leapmpi.system.allocator import keep_freed_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        np.empty(8 << 20, np.uint8)[::4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(1)
given_back = faults(10)
if not keep_freed_memory():
    sys.exit(77)
faults(1)
print(given_back, faults(10))
"""


def test_large_arrays_are_made_again_without_page_faults():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    if done.returncode == 77:
        pytest.skip("the C library is not glibc")
    given_back, kept = map(int, done.stdout.split())
    assert kept < 100 < given_back


class Node:
    """Something that refers to itself, which nothing but the collector can free."""

    def __init__(self):
        self.own = self


@pytest.fixture
def set_aside(monkeypatch):
    """Sets lasting objects aside, until the test is over; first takes back what tests/conftest.py did."""
    monkeypatch.setattr("leapmpi.system.allocator._left_to_program", False)
    gc.unfreeze()
    yield set_aside_lasting_objects
    take_back_lasting_objects()
    assert gc.get_freeze_count() == 0
    gc.freeze()


def test_garbage_made_later_is_still_collected(set_aside):
    lasting = Node()
    set_aside()
    assert gc.get_freeze_count() > 1000
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None
    assert lasting.own is lasting


def test_what_has_ended_is_freed_when_the_next_begins(set_aside):
    ended = Node()
    gone = weakref.ref(ended)
    set_aside()
    del ended
    set_aside()
    assert gone() is None


def test_what_a_program_has_set_aside_itself_stays_so():
    gc.freeze()
    before = gc.get_freeze_count()
    set_aside_lasting_objects()
    take_back_lasting_objects()
    # Another thread may end some of them meanwhile; taken back, none would be left.
    assert gc.get_freeze_count() > before - 1000


def test_imports_are_set_aside_at_once(set_aside):
    with without_collection():
        imported = Node()
    assert gc.get_freeze_count() > 1000
    made = Node()
    gone = [weakref.ref(imported), weakref.ref(made)]
    del imported, made
    set_aside()
    assert [each() is None for each in gone] == [False, True]
    take_back_lasting_objects()
    gc.collect()
    assert gone[0]() is None


def test_collection_goes_on_after_an_import_even_if_it_fails():
    with without_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    with suppress(ImportError), without_collection():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("program", ["leapmpi", "leapmpi-prep"])
def test_a_program_leaves_its_garbage_to_the_end_of_the_process(program):
    """What is called with arguments, as from Python, does not: its process goes on."""
    script = (
        "import gc, sys; from {module} import main; main(['--version']); "
        "print(gc.isenabled(), gc.get_freeze_count() > 0); "
        "sys.argv[1:] = ['--version']; main(); print(gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    module = {"leapmpi": "leapmpi.cli.main", "leapmpi-prep": "data_prep.cli"}[program]
    found = subprocess.run([sys.executable, "-c", script.format(module=module)], capture_output=True, text=True)
    answers = [line for line in found.stdout.splitlines() if line.startswith(("True", "False"))]
    assert answers == ["True False", "False True"], found
