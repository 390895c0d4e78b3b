"""jobs/environment: requests that it refuses before it changes anything."""

import shutil
import subprocess

from tests.support.launch import PROJECT, child_environment


def make(**env):
    command = [PROJECT / "jobs/environment"]
    return subprocess.run(command, env=child_environment(env), capture_output=True, text=True, timeout=60)


def test_a_folder_of_the_user_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    job = make(LEAPMPI_ENV=str(tmp_path))
    assert job.returncode == 1
    assert "was not made by jobs/environment" in job.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_python_that_is_too_old_is_reported(tmp_path):
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    job = make(LEAPMPI_ENV=str(tmp_path / "env"), LEAPMPI_PYTHON=str(old))
    assert job.returncode == 1
    assert job.stderr.startswith("environment: error: no Python >= 3.11 found")
    assert len(job.stderr.splitlines()) == 1


def test_an_unknown_kind_of_mpi_is_refused(tmp_path):
    job = make(LEAPMPI_ENV=str(tmp_path / "env"), LEAPMPI_MPI="sight")
    assert "LEAPMPI_MPI must be 'wheel' or 'site', not 'sight'" in job.stderr
    assert not (tmp_path / "env").exists()


def test_a_site_s_torch_is_asked_for_first(tmp_path):
    job = make(LEAPMPI_ENV=str(tmp_path / "env"), LEAPMPI_TORCH="sight")
    assert "LEAPMPI_TORCH must be 'pinned' or 'site', not 'sight'" in job.stderr
    without = tmp_path / "python"
    without.write_text('#!/bin/sh\ncase "$2" in *torch*) exit 1;; esac\n')
    without.chmod(0o755)
    job = make(LEAPMPI_ENV=str(tmp_path / "env"), LEAPMPI_TORCH="site", LEAPMPI_PYTHON=str(without))
    assert f"{without} has no torch" in job.stderr
    assert not (tmp_path / "env").exists()


def test_a_site_s_mpi_needs_its_compiler(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ["bash", "dirname", "env", "realpath"]:
        (tools / tool).symlink_to(shutil.which(tool))
    job = make(LEAPMPI_ENV=str(tmp_path / "env"), LEAPMPI_MPI="site", PATH=str(tools))
    assert "needs the site's mpicc" in job.stderr
    assert not (tmp_path / "env").exists()
