"""The example notebook: its cells run in order, here and, where it is installed, in Jupyter's kernel."""

import importlib.util
import json
import sys
from types import ModuleType

import pytest

from tests.support.launch import PROJECT

PAGE = PROJECT / "leapmpi/NOTEBOOK.ipynb"


def cells():
    return ["".join(each["source"]) for each in json.loads(PAGE.read_text())["cells"] if each["cell_type"] == "code"]


@pytest.mark.long(10)
def test_the_cells_run_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    for _ in range(2):
        for cell in cells():
            exec(compile(cell, "<cell>", "exec"), notebook.__dict__)
    assert notebook.run.config.model.name == "__main__:Net"
    assert notebook.sage.curves["val"].max() > 0.6
    lines = (tmp_path / "classes.csv").read_text().splitlines()
    assert lines[0] == "vertex,class"
    assert lines[1].startswith("book-0,")
    assert "overwrite=True replaces it" in capsys.readouterr().out


def test_no_cell_has_outputs():
    assert all(not each.get("outputs") for each in json.loads(PAGE.read_text())["cells"])


@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="nbclient is not installed")
@pytest.mark.skipif(importlib.util.find_spec("ipykernel") is None, reason="ipykernel is not installed")
def test_jupyter_runs_it(tmp_path):
    import nbclient
    import nbformat

    notebook = nbformat.read(PAGE, 4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("iframe" in str(output.get("data", {}).get("text/html", "")) for output in shown)
