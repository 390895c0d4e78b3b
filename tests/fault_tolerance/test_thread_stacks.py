"""What is left of a rank that is stuck: every thread's stack, and the messages that it waits for."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
from mpi4py import MPI

from leapmpi.comm.interleaving import InterleavedWork, suspended_stack
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.comm.progress_thread import ProgressThread, ProgressThreadStopped
from leapmpi.fault_tolerance.thread_stacks import thread_stacks
from leapmpi.system import channels

PATIENCE = 10.0


def text_with(*sentences):
    """The text about all threads, as another one writes it, once all `sentences` are in it."""
    end = time.monotonic() + PATIENCE
    with ThreadPoolExecutor(1) as pool:
        while True:
            found = pool.submit(lambda: "".join(thread_stacks(threading.main_thread().ident))).result()
            if all(each in found for each in sentences):
                return found
            assert time.monotonic() < end, found


def section(text, heading):
    """The paragraph of `text` that begins with `heading`."""
    (found,) = (each for each in text.split("\n\n") if each.strip().startswith(heading))
    return found


def test_each_thread_is_shown_with_the_messages_that_it_waits_for():
    comm = MPI.COMM_SELF.Dup()
    communicator, whole = MPICommunicator(comm, ahead=(comm, comm)), MPICommunicator(MPI.COMM_SELF)
    communicator.join(whole, np.array([5]))
    whole.progress_thread = thread = ProgressThread()
    arriving = np.empty(129, np.int64)
    # Stacks show lines of this file, so no line where a thread may stand holds what the text is searched for.
    message = "Irecv, rank 5, tag 3 (int64), 1,032 bytes"
    waits, carries = f"waits in channel AHEAD for {message}", f"carries in channel AHEAD: {message}"

    def receive_ahead():
        with channels.ahead(), suppress(ProgressThreadStopped):
            communicator.receive(arriving, np.array([129]))

    ahead = threading.Thread(target=receive_ahead, name="leapmpi-ahead")
    thread.start()
    try:
        ahead.start()
        # One thread may carry the message before the other has written that it waits for it.
        text = text_with(carries, waits)
    finally:
        # What is under way gets its message, and ends.
        thread.stop()
        ahead.join()
        comm.Send([np.zeros(129, np.int64), MPI.BYTE], 0, 3)
        comm.Free()
    assert waits in section(text, "leapmpi-ahead")
    assert "in receive_ahead" in section(text, "leapmpi-ahead")
    assert carries in section(text, "leapmpi-progress")
    assert "in text_with" in section(text, "MainThread (training)")
    assert text.index("MainThread") < text.index("leapmpi-progress")


def test_work_on_the_thread_that_trains_is_shown_too():
    def wait_ahead():
        work._stack.parent.switch()

    work = InterleavedWork(wait_ahead)
    work.go_on()
    heading = "suspended on the same thread"
    assert "in wait_ahead" in section(text_with(heading), heading)
    work.finish()
    assert suspended_stack() is None
