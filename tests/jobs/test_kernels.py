"""jobs/kernels: what it compiles, the first job does not compile."""

import pytest

from data_prep.cli import main as prep
from tests.support.launch import PROJECT, child_environment, mpirun, run


@pytest.mark.long(40)
@pytest.mark.timeout(300)
def test_the_first_training_finds_its_kernels(tmp_path):
    kernels, temporary = tmp_path / "kernels", tmp_path / "temporary"
    temporary.mkdir()
    settings = {"NUMBA_CACHE_DIR": str(kernels), "TMPDIR": str(temporary)}
    made = run([str(PROJECT / "jobs/kernels")], 200.0, child_environment(settings), tmp_path)
    assert made.returncode == 0, made.stderr
    assert list(temporary.iterdir()) == [], "its graph is left behind"

    # Another graph than that of the script.
    graph, data = str(tmp_path / "graph.h5"), str(tmp_path / "data")
    assert prep(["synth", graph, "--vertices", "3000", "--edges", "40000", "--features", "32", "--classes", "4"]) == 0
    assert prep(["partition", graph, data, "--parts", "2", "--method", "metis"]) == 0
    before = {path.name for path in kernels.glob("*.nbc")}
    assert before
    flags = ["--epochs", "1", "--strategy", "leap", "--remote", "sums", "--run", str(tmp_path / "run")]
    job = mpirun(2, ["leapmpi", "train", data, *flags], env=settings)
    assert job.returncode == 0, job.stderr
    assert {path.name for path in kernels.glob("*.nbc")} == before
