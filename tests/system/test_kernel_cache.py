"""Compiled kernels on disk: what names them, and who compiles them."""

import fcntl
import gc
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import numba
import pytest

from leapmpi.system.kernel_cache import cached, content_digest, lock_waits, locked

SOURCE = """
FACTOR = 3

@kernel
def times(x):
    return x * FACTOR

@kernel
def sum_of_products(values):
    # A comment.
    total = 0
    for value in values:
        total += times(value)
    return total
"""


def module(source, folder, **options):
    """What `source` defines, its kernels kept in `folder`."""
    found = {"__name__": "leapmpi.of_a_test", "kernel": lambda f: cached(numba.njit(**options)(f), folder)}
    exec(source, found)
    return found


def compiled_here(kernel):
    return sum(kernel._cache_misses.values())


def test_another_copy_of_the_same_version_finds_the_kernel(tmp_path):
    moved = "\n\n# Another place.\n" + SOURCE.replace("# A comment.", "# Another comment.")
    for source, misses in ((SOURCE, 1), (moved, 0)):
        kernel = module(source, tmp_path)["sum_of_products"]
        assert kernel((1, 2)) == 9
        assert compiled_here(kernel) == misses


@pytest.mark.parametrize(
    ("before", "after", "result"),
    [("FACTOR = 3", "FACTOR = 5", 15), ("x * FACTOR", "x + FACTOR", 9), ("total = 0", "total = 1", 10)],
    ids=["constant", "called kernel", "own code"],
)
def test_a_new_version_never_reads_an_old_kernel(tmp_path, before, after, result):
    assert module(SOURCE, tmp_path)["sum_of_products"]((1, 2)) == 9
    kernel = module(SOURCE.replace(before, after), tmp_path)["sum_of_products"]
    assert kernel((1, 2)) == result
    assert compiled_here(kernel) == 1


def test_no_garbage_is_collected_while_a_kernel_compiles_even_if_that_fails(tmp_path, monkeypatch):
    kernel, seen = module(SOURCE, tmp_path)["sum_of_products"], []
    compile_it = type(kernel).compile

    def compile_and_see(self, signature):
        seen.append(gc.isenabled())
        return compile_it(self, signature)

    monkeypatch.setattr(type(kernel), "compile", compile_and_see)
    kernel((1, 2))
    with pytest.raises(numba.TypingError):
        kernel(None)
    assert set(seen) == {False}
    assert gc.isenabled()


def test_other_options_are_another_kernel(tmp_path):
    kernels = [module(SOURCE, tmp_path, **options)["sum_of_products"] for options in ({}, {"error_model": "numpy"})]
    assert content_digest(kernels[0]) != content_digest(kernels[1])


FACTORY = """
def adder(step):
    @kernel
    def add(x):
        return x + step

    @kernel
    def add_twice(x):
        return add(add(x))

    return add_twice

first, second = adder(1), adder(10)
"""


HEADING = """
from pathlib import Path
import numba
from leapmpi.system.kernel_cache import cached, distinctly_named

def kernel(function):
    return cached(numba.njit(distinctly_named(function)), Path(__file__).parent)
"""


def started(folder, work):
    """Call `work` with the module of_a_test of `folder` in a copy of this process, in which numba is loaded.

    Returns its number, and the pipe to which it prints the result.
    """
    read, write = os.pipe()
    number = os.fork()
    if not number:
        with suppress(BaseException):
            sys.path.insert(0, str(folder))
            os.write(write, str(work(importlib.import_module("of_a_test"))).encode())
        os._exit(0)
    os.close(write)
    return number, os.fdopen(read)


def printed_by(number, pipe):
    """What a process that was `started` prints until its end."""
    with pipe:
        found = pipe.read()
    os.waitpid(number, 0)
    return found


def test_kernels_of_one_factory_are_not_taken_for_each_other(tmp_path):
    (tmp_path / "of_a_test.py").write_text(HEADING + FACTORY)
    # Each is compiled in a process of its own, in which it is counted alike.
    for called, results in (
        (("first",), [2]),
        (("second",), [20]),
        (("first", "second"), [2, 20]),
        (("second", "first"), [20, 2]),
    ):
        work = partial(lambda called, found: [getattr(found, name)(0) for name in called], called)
        assert printed_by(*started(tmp_path, work)) == str(results)


def test_a_kernel_that_is_found_needs_nothing_that_compiles(tmp_path):
    (tmp_path / "of_a_test.py").write_text(HEADING + SOURCE)
    program = "import sys, of_a_test; print(of_a_test.sum_of_products((1, 2)), 'numba.np.linalg' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for printed in ("9 True", "9 False"):
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert found.stdout.strip() == printed, found.stderr


def test_a_damaged_file_is_compiled_anew(tmp_path):
    module(SOURCE, tmp_path)["times"](2)
    (file,) = tmp_path.glob("*.nbc")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert module(SOURCE, tmp_path)["times"](2) == 6
    assert len(file.read_bytes()) == len(content)


def test_nothing_but_kernels_is_left_behind(tmp_path):
    found = module(SOURCE, tmp_path)
    found["sum_of_products"]((1, 2))
    assert {entry.suffix for entry in tmp_path.iterdir()} == {".nbc"}
    found["times"]._cache.flush()
    assert [entry.name.split("-")[0] for entry in tmp_path.iterdir()] == ["of_a_test.sum_of_products"]


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path):
    assert module(SOURCE, tmp_path / "nowhere")["times"](2) == 6


def test_processes_that_start_together_compile_a_kernel_once(tmp_path):
    (tmp_path / "of_a_test.py").write_text(HEADING + SOURCE)
    read, write = os.pipe()

    def misses(found):
        # The end of this pipe lets all of them go.
        os.close(write)
        os.read(read, 1)
        assert found.sum_of_products((1, 2)) == 9
        return [compiled_here(kernel) for kernel in (found.times, found.sum_of_products)]

    processes = [started(tmp_path, misses) for _ in range(3)]
    os.close(write)
    of_each = [json.loads(printed_by(*each)) for each in processes]
    os.close(read)
    assert [sum(each) for each in zip(*of_each, strict=True)] == [1, 1]


def test_who_waits_for_another_to_compile_is_seen_to_look(tmp_path):
    order, before = [], lock_waits.looked

    def wait():
        with locked(tmp_path / "lock"):
            order.append("waiter")

    with locked(tmp_path / "lock"):
        waiter = threading.Thread(target=wait)
        waiter.start()
        while lock_waits.looked < before + 3:
            time.sleep(0.01)
        order.append("holder")
    waiter.join()
    assert order == ["holder", "waiter"]
    assert not list(tmp_path.iterdir())


def test_a_process_that_never_ends_compiling_is_not_waited_for(tmp_path):
    with (tmp_path / "lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with locked(tmp_path / "lock", patience=0.05):
            pass
        # It still keeps others waiting.
        before = lock_waits.looked
        with locked(tmp_path / "lock", patience=0.05):
            assert lock_waits.looked > before


def test_a_newcomer_waits_for_whoever_waited_before_it(tmp_path):
    path, inside, done = tmp_path / "lock", threading.Event(), threading.Event()

    def wait():
        with locked(path):
            inside.set()
            done.wait()

    waiter, before = threading.Thread(target=wait), lock_waits.looked
    with locked(path):
        waiter.start()
        while lock_waits.looked < before + 3:
            time.sleep(0.01)
    inside.wait()
    before = lock_waits.looked
    with locked(path, patience=0.05):
        assert lock_waits.looked > before
    done.set()
    waiter.join()
    assert not path.exists()
