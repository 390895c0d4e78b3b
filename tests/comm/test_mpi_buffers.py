"""What may be handed to MPI: bytes of the right arrays, in place, cut without gaps."""

import numpy as np
import pytest
import torch

from leapmpi.comm import mpi_buffers
from tests.support.fake_device import FakeDevice, launch


@pytest.mark.parametrize("dtype", sorted({*mpi_buffers.DTYPES} - {"bfloat16"}))
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (4,), (3, 5)])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_bytes_are_those_of_the_array_itself(kind, shape, dtype):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    given = torch.from_numpy(array) if kind == "torch" else array
    found = mpi_buffers.as_bytes(given, "x")
    assert found.dtype == np.uint8
    assert found.tobytes() == array.tobytes()
    assert mpi_buffers.dtype_name(given) == dtype
    assert mpi_buffers.DTYPES[mpi_buffers.type_code(given)] == dtype
    found[:] = 0
    assert not array.any()


def test_bfloat16_goes_as_its_bits():
    tensor = torch.tensor([1.0, -2.5], dtype=torch.bfloat16)
    assert mpi_buffers.dtype_name(tensor) == "bfloat16"
    assert mpi_buffers.as_bytes(tensor, "x").tobytes() == tensor.view(torch.int16).numpy().tobytes()


def test_tensors_that_learn_may_be_sent():
    assert len(mpi_buffers.as_bytes(torch.ones(3, requires_grad=True), "x")) == 12


UNFIT = {
    "transposed": np.zeros((3, 4)).T,
    "every second column": np.zeros((4, 4))[:, ::2],
    "backwards": np.zeros(4)[::-1],
    "other byte order": np.zeros(4, ">f8"),
    "bool": np.zeros(4, bool),
    "text": np.array(["a"]),
    "transposed tensor": torch.zeros(3, 4).T,
    "expanded tensor": torch.zeros(3, 1).expand(3, 4),
    "complex tensor": torch.zeros(4, dtype=torch.complex64),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_mpi_would_garble_is_refused_by_name(name):
    with pytest.raises(ValueError, match=r"^the rows: "):
        mpi_buffers.check(UNFIT[name], "the rows")


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 1000])
def test_parts_cover_all_bytes_once(size, monkeypatch):
    monkeypatch.setattr(mpi_buffers, "MESSAGE_LIMIT", 10)
    found = mpi_buffers.parts(size)
    assert [byte for part in found for byte in range(part.start, part.stop)] == list(range(size))
    assert all(0 < part.stop - part.start <= 10 for part in found)


def test_a_message_fits_the_counts_of_mpi():
    assert mpi_buffers.MESSAGE_LIMIT < 2**31
    assert [part.stop - part.start for part in mpi_buffers.parts(2**33 + 1)][-1] == 1


def test_device_memory_is_shown_by_its_address():
    tensor = FakeDevice.of(np.arange(10, dtype=np.float64))
    whole = mpi_buffers.as_bytes(tensor, "x")
    assert len(whole) == 80
    part = whole[16:40][8:]
    assert len(part) == 16
    assert part.__cuda_array_interface__ == {
        "version": 3, "shape": (16,), "typestr": "|u1", "data": (tensor.data_ptr() + 24, False), "strides": None,
    }  # fmt: skip
    assert len(whole[80:]) == len(whole[:0]) == 0
    assert part.owner is tensor


def test_synchronise_ends_work_on_device_memory_and_ignores_the_host():
    tensor = FakeDevice.of(np.zeros(3))
    launch(tensor, lambda memory: memory.fill_(5))
    mpi_buffers.synchronise(np.zeros(3))
    mpi_buffers.synchronise(torch.zeros(3))
    assert FakeDevice.queue
    mpi_buffers.synchronise(tensor)
    assert not FakeDevice.queue


def test_new_memory_is_of_the_same_kind():
    assert isinstance(mpi_buffers.empty_like(np.zeros(3, np.float16), 2, 5), np.ndarray)
    made = mpi_buffers.empty_like(torch.zeros(3, dtype=torch.float64), 2, 5)
    assert (made.shape, made.dtype) == ((2, 5), torch.float64)
    assert isinstance(mpi_buffers.empty_like(FakeDevice.of(np.zeros(3)), 2), FakeDevice)
