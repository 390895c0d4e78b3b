"""Triton's kernels as machine code for GPUs that this machine lacks: registers, spills, and roundings of torch."""

import re

import numpy as np
import pytest
import torch

from leapmpi.dataset.topology import Topology
from leapmpi.device.device_frontier import Destinations, DeviceFrontier, DeviceTopology
from leapmpi.sampling.source_numbers import Law
from tests.support.triton_launches import WHY_SKIPPED, compiled, recorded

pytest.importorskip("triton", reason=WHY_SKIPPED)

from leapmpi.device import draws_triton, list_draws_triton, numbering_triton, table_draws_triton, walk_draws_triton
from leapmpi.device.table_draws import Counts, Norms
from leapmpi.device.walk_draws import Walks
from leapmpi.nn.kernels import csr_triton, dropout_triton

pytestmark = pytest.mark.compiles

TARGETS = ["sm_70", "sm_80", "sm_90", "sm_100", "gfx90a", "gfx942"]
FUSED = re.compile(r"\b(FFMA|DFMA|fma\.rn\.f|v_fma_f|v_fmac_f|v_pk_fma_f)")
"""Instructions that round a product and a sum at once."""


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    from triton import knobs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knobs.cache, "dir", str(tmp_path_factory.mktemp("triton")))
        yield


def draws(fanout, draw=draws_triton.node_wise):
    """Draw for some destinations."""
    draw(7, Destinations(*(torch.arange(3, 9) for _ in range(4))), fanout)


def one_list():
    """Return a topology with one vertex, and it as a destination."""
    topology = DeviceTopology(Topology(np.array([0, 3]), np.zeros(3, np.int32), np.arange(1)), torch.device("cpu"))
    frontier = DeviceFrontier(topology)
    frontier.begin(np.array([0]))
    return topology, frontier.reached


def by_number(name, kept):
    """Draw from a list by the numbers of sources."""
    topology, to = one_list()
    getattr(list_draws_triton, name)(Law(np.uint64(7), 1, kept), topology, to, 1)


def by_weight(by_edge):
    """Draw from a list by weights."""
    topology, to = one_list()
    weights = torch.ones(3) if by_edge else torch.ones(1, dtype=torch.int64)
    list_draws_triton.by_weight(7, topology, weights, to, 1, by_edge)


def by_time(latest):
    """Draw from a list by times."""
    topology, to = one_list()
    list_draws_triton.by_time(7, topology, torch.arange(3), (0, 1 << 40), to, 1, latest)


def by_walks(number, steps):
    """Draw by walks from a vertex."""
    walk_draws_triton.by_walks(7, one_list()[0], Walks(number, steps, 1 << 62), one_list()[1], 3)


def from_table(weighted=True, counts=None):
    """Draw from a list what is in a table."""
    topology, to = one_list()
    table_draws_triton.from_table(topology, torch.ones(1, dtype=torch.float64), to, weighted, counts)


def by_importance():
    """Draw from a list by the importance of sources."""
    topology, to = one_list()
    importance = table_draws_triton.importance_of(topology, to, 2, 1)
    table_draws_triton.by_importance(Law(np.uint64(7), 1, 1), topology, importance, to, 2)


def by_norm():
    """Draw vertices of a graph by their norms."""
    table_draws_triton.by_norm(7, Norms(torch.ones(5).double(), INDICES, INDICES + 1, 1 << 40), 9)


def sums(dtype, index, width=256, heads=1):
    """Add up over some edges."""
    edges, weight = torch.zeros(5, dtype=index), torch.ones(5, heads, dtype=dtype)
    csr_triton.weighted_sum(torch.tensor([0, 5]), edges, weight, torch.ones(9, width, dtype=dtype))


ROWS, INDICES, DEGREES = torch.tensor([0, 2, 5]), torch.arange(5), torch.tensor([2, 3])
ROOTS, WEIGHTS, TABLE = torch.ones(9), torch.ones(5), torch.zeros(4, 3, dtype=torch.int64)


def mask(dtype):
    """Drop elements of some rows."""
    dropout_triton.mask_vertices(torch.ones(5, 70, dtype=dtype), torch.arange(5), 1 << 40, 32768, 3)


def append():
    """Number some vertices after others."""
    numbering_triton.appended(INDICES.int(), torch.zeros(9, dtype=torch.int32), torch.arange(10), INDICES, TABLE)


LAUNCHES = {
    "draws at fan-out 2": (lambda: draws(2), 64),
    "draws at fan-out 10": (lambda: draws(10), 128),
    "draws at fan-out 64": (lambda: draws(64), 128),
    "draws with replacement": (lambda: draws(10, draws_triton.with_replacement), 128),
    "draws of the smallest numbers": (lambda: by_number("smallest_numbers", 1), 128),
    "draws of the smallest numbers, kept": (lambda: by_number("smallest_numbers", 3), 128),
    "draws of numbers below": (lambda: by_number("numbers_below", 1), 128),
    "draws by weights": (lambda: by_weight(False), 128),
    "draws by weights of edges": (lambda: by_weight(True), 128),
    "draws by times": (lambda: by_time(False), 128),
    "draws of the latest": (lambda: by_time(True), 128),
    "draws by walks": (lambda: by_walks(50, 2), 128),
    "draws by many steps": (lambda: by_walks(7, 32), 128),
    "draws from a table": (from_table, 64),
    "draws from a subgraph": (lambda: from_table(weighted=False), 64),
    "draws of counted edges": (lambda: from_table(counts=Counts(INDICES.int(), INDICES.int())), 64),
    "draws by importance": (by_importance, 128),
    "tables by norms of a frontier": (lambda: table_draws_triton.by_frontier(7, *one_list(), 1), 64),
    "tables by norms": (by_norm, 64),
    "sums of float32": (lambda: sums(torch.float32, torch.int64), 40),
    "sums of float64": (lambda: sums(torch.float64, torch.int64), 40),
    "sums of some heads": (lambda: sums(torch.float32, torch.int32, 24, 3), 40),
    "weights of rows": (lambda: table_draws_triton.normalised(ROWS, WEIGHTS, DEGREES), 64),
    "transposed lists": (lambda: csr_triton.transpose(ROWS, INDICES, 9), 64),
    "lists with self": (lambda: csr_triton.with_self(ROWS, INDICES), 64),
    "shares": (lambda: csr_triton.shares(5, ROWS, None, None, torch.float32), 64),
    "shares of weights": (lambda: csr_triton.shares(5, ROWS, DEGREES, WEIGHTS, torch.float64), 96),
    "symmetric weights": (lambda: csr_triton.symmetric_weight(ROWS, INDICES, ROOTS, DEGREES, None), 64),
    "dropout of float32": (lambda: mask(torch.float32), 64),
    "dropout of float64": (lambda: mask(torch.float64), 64),
    "first numbers": (lambda: numbering_triton.begun(INDICES, INDICES.int(), INDICES, INDICES), 128),
    "numbers": (append, 128),
    "positions": (lambda: numbering_triton.positions(INDICES, INDICES.int()), 64),
}
"""By name, a launch, and the most registers that a thread of it may take.

With 128, four programs of 128 threads run on a multiprocessor at a time.
"""

SPILLED = {
    "draws by weights of edges": 32,
    "draws with replacement": 8,
    "draws by many steps": 8,
    "transposed lists": 8,
}
"""Most bytes that a thread keeps in memory, by name; none elsewhere."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LAUNCHES)
def test_kernels_compile_for_every_target_without_spills(name, target, monkeypatch):
    run, most = LAUNCHES[name]
    for launch in launched(run, monkeypatch):
        code = compiled(launch, target)
        assert code.spilled <= SPILLED.get(name, 0)
        assert code.registers <= most
        if name.startswith("sums"):
            assert not FUSED.search(code.instructions)


@pytest.mark.parametrize("target", TARGETS)
def test_products_are_fused_with_sums_unless_the_launch_forbids_it(target, monkeypatch):
    (launch,) = launched(LAUNCHES["sums of float32"][0], monkeypatch)
    assert launch.options == {"enable_fp_fusion": False}
    assert FUSED.search(compiled(launch._replace(options={"enable_fp_fusion": True}), target).instructions)


@pytest.mark.parametrize("name", ["draws by weights", "draws by weights of edges"])
def test_a_loop_hands_on_all_that_the_source_does(name, monkeypatch):
    # MLIR dropped two of them, and drew wrongly on an H100, where the interpreter drew rightly.
    for launch in launched(LAUNCHES[name][0], monkeypatch):
        (carried,) = re.findall(r"scf\.while \((.*?)\) :", compiled(launch, "sm_90").triton)
        names = {each.split(" = ")[0] for each in carried.split(", ")}
        assert names >= {"%picks", "%total", "%by_picks", "%by_total", "%certain_count"}


def launched(run, monkeypatch):
    """Return the launches that `run` makes."""
    of_draws = draws_triton, list_draws_triton, table_draws_triton, walk_draws_triton, numbering_triton
    return recorded(run, monkeypatch, *of_draws, csr_triton, dropout_triton)
