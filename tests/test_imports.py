"""Light starts: help, version and imports load no heavy package and start no MPI."""

import subprocess
import sys

import pytest

from tests.support.launch import PROJECT, child_environment

HEAVY = ("mpi4py", "torch", "numba", "h5py", "scipy", "pymetis", "numpy")

CODE = """
import sys
try:
    {action}
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", *(name for name in {heavy} if name in sys.modules))
"""


def loaded_by(action: str, heavy=HEAVY) -> tuple[set[str], str]:
    """Which of `heavy` a fresh interpreter has loaded after `action`, and what was printed."""
    child = subprocess.run(
        [sys.executable, "-c", CODE.format(action=action, heavy=heavy)],
        env=child_environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    printed, _, names = child.stdout.rpartition("loaded:")
    return set(names.split()), printed


@pytest.mark.parametrize(
    "command",
    [
        *("leapmpi --help", "leapmpi --version", "leapmpi train --help", "leapmpi evaluate --help"),
        *("leapmpi compare --help", "leapmpi plan --help", "leapmpi doctor --help"),
        *("data_prep --help", "data_prep --version", "data_prep import --help", "data_prep partition --help"),
    ],
)
def test_help_loads_nothing_heavy(command):
    program, *arguments = command.split()
    module = {"leapmpi": "leapmpi.cli.main", "data_prep": "data_prep.cli"}[program]
    loaded, printed = loaded_by(f"from {module} import main; main({arguments})")
    assert loaded == set()
    assert "leapmpi" in printed


def test_a_refused_flag_loads_nothing_heavy():
    loaded, _ = loaded_by("from leapmpi.cli.main import main; assert main(['train', 'data', '--fanout', '0']) == 2")
    assert loaded == set()


@pytest.mark.parametrize("package", ["leapmpi", "data_prep", "leapmpi.config.schema", "leapmpi.comm.world"])
def test_importing_the_packages_loads_nothing_heavy(package):
    assert loaded_by(f"import {package}")[0] == set()


def test_data_layers_need_neither_mpi_nor_torch():
    modules = (
        "leapmpi.dataset.partitioned", "leapmpi.dataset.topology", "leapmpi.dataset.verify",
        "leapmpi.dataset.graph_file",
        "leapmpi.sampling.node_wise", "leapmpi.plan.planner", "leapmpi.sampling.epoch_order", "leapmpi.plan.schedule",
        "leapmpi.plan.homes",
        "leapmpi.plan.traffic_model", "leapmpi.plan.cost_model", "leapmpi.plan.micrograph",
        "leapmpi.runs.run", "leapmpi.runs.compare",
        "data_prep.commands.import_graph", "data_prep.commands.synth", "data_prep.commands.partition",
        "data_prep.commands.info", "data_prep.commands.check",
    )  # fmt: skip
    assert loaded_by(f"import {', '.join(modules)}", ("mpi4py", "torch"))[0] == set()


def test_training_loads_no_computer_algebra(small_data, tmp_path):
    train = f"from leapmpi.cli.main import main; settings = ['train', '{small_data}', '--epochs', '1', '--run']"
    own = str(PROJECT / "tests/support/own_module.py:Net")
    choices = (["--strategy", "leap"], ["--strategy", "naive"], ["--model", own])
    runs = [f"assert main([*settings, '{tmp_path / str(n)}', *{each}]) == 0" for n, each in enumerate(choices)]
    assert loaded_by("; ".join([train, *runs]), ("torch", "sympy"))[0] == {"torch"}
