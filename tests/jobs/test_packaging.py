"""Recipes for installation systems name what setup.py needs, and are read by their tools where these are installed."""

import ast
import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from leapmpi.version import VERSION
from tests.support.launch import PROJECT

PACKAGING = PROJECT / "jobs" / "packaging"
SPACK = PACKAGING / "spack/packages/py-leapmpi/package.py"
(EASYCONFIG,) = (PACKAGING / "easybuild").glob("*.eb")
CONDA = PACKAGING / "conda/recipe.yaml"
APPTAINER = PACKAGING / "apptainer/leapmpi.def"
REFRAME = PACKAGING / "reframe/leapmpi_check.py"


@pytest.fixture(scope="module")
def requirements():
    """The dependencies of setup.py: the least version by name."""
    with mock.patch("setuptools.setup") as setup, mock.patch.object(sys, "argv", ["setup.py"]):
        runpy.run_path(str(PROJECT / "setup.py"))
    return dict(re.fullmatch(r"(\w+)>=([\d.]+)", each).groups() for each in setup.call_args.kwargs["install_requires"])


def test_every_folder_stands_in_the_table():
    page = (PACKAGING / "README.md").read_text()
    for folder in PACKAGING.iterdir():
        assert not folder.is_dir() or f"| [{folder.name}](" in page


def test_spack_needs_what_setup_needs(requirements):
    found = dict(re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):", type=\("build", "run"\)\)', SPACK.read_text()))
    assert found == requirements
    assert f'version("{VERSION}")' in SPACK.read_text()


def test_conda_needs_what_setup_needs(requirements):
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load(CONDA.read_text())
    found = dict(each.split(" >=") for each in recipe["requirements"]["run"])
    assert found.pop("python") == "3.11"
    assert found | {"torch": found.pop("pytorch")} == requirements
    assert recipe["context"]["version"] == VERSION
    assert (CONDA.parent / recipe["source"]["path"]).resolve() == PROJECT


def test_easybuild_has_at_least_what_setup_needs(requirements):
    # Names that EasyBuild defines: text templates.
    values = {}
    exec(EASYCONFIG.read_text(), {"SOURCE_TAR_GZ": ""}, values)
    listed = [*values["dependencies"], *values["exts_list"]]
    found = {"torch" if name == "PyTorch" else name.lower(): version for name, version, *_ in listed}
    assert found.pop("leapmpi") == values["version"] == VERSION
    assert EASYCONFIG.name == f"leapmpi-{VERSION}-foss-{values['toolchain']['version']}.eb"
    assert found.keys() >= requirements.keys() - {"numpy"}  # of the SciPy-bundle
    for name, least in requirements.items():
        if name in found:
            assert tuple(map(int, found[name].split("."))) >= tuple(map(int, least.split(".")))


def test_sections_of_the_container_are_shell():
    text = APPTAINER.read_text()
    sections = dict(re.findall(r"^%(\w+)[^\n]*\n(.*?)(?=^%|\Z)", text, re.MULTILINE | re.DOTALL))
    assert {"arguments", "files", "post", "environment", "runscript", "test"} <= sections.keys()
    for name in ("post", "environment", "runscript", "test"):
        script = re.sub(r"\{\{ \w+ \}\}", "value", sections[name])
        assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).stderr == ""
    for line in sections["files"].split("\n"):
        assert not line.strip() or (PROJECT / line.split()[0]).exists()
    given = set(re.findall(r"^    (\w+)=", sections["arguments"], re.MULTILINE))
    assert given == set(re.findall(r"\{\{ (\w+) \}\}", text))


@pytest.mark.parametrize("path", [SPACK, REFRAME], ids=lambda path: path.parent.name)
def test_python_is_python(path: Path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.skipif(importlib.util.find_spec("reframe") is None, reason="reframe is not installed")
def test_reframe_lists_the_checks():
    words = [sys.executable, "-m", "reframe", "-c", str(REFRAME), "-l"]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "LeapmpiTraining" in found.stdout, found.stderr
