"""Compiled kernels on disk: what names them, and who compiles them."""

import fcntl
import gc
import os
import subprocess
import sys
import threading
import time

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


def test_kernels_of_one_factory_are_not_taken_for_each_other(tmp_path):
    (tmp_path / "of_a_test.py").write_text(HEADING + FACTORY)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    # Each is compiled in a process of its own, in which it is counted alike.
    for called, printed in (
        (("first",), "2"),
        (("second",), "20"),
        (("first", "second"), "2 20"),
        (("second", "first"), "20 2"),
    ):
        program = f"import of_a_test; print(*(each(0) for each in ({', '.join(f'of_a_test.{n}' for n in called)},)))"
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert found.stdout.strip() == printed, found.stderr


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
    program = """
import of_a_test, time, sys
while time.time() < float(sys.argv[1]):
    pass
assert of_a_test.sum_of_products((1, 2)) == 9
print(*(sum(kernel._cache_misses.values()) for kernel in (of_a_test.times, of_a_test.sum_of_products)))
"""
    command = [sys.executable, "-c", program, str(time.time() + 3)]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    misses = [list(map(int, process.communicate(timeout=100)[0].split())) for process in started]
    assert [sum(each) for each in zip(*misses, strict=True)] == [1, 1]


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
