"""Code on the page of data_prep does what the page says."""

import re

import pytest

from tests.support.launch import PROJECT


def test_networkx(imported, tmp_path, monkeypatch):
    pytest.importorskip("networkx")
    monkeypatch.chdir(tmp_path)
    page = (PROJECT / "data_prep/IMPORT.md").read_text()
    (code,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    exec(code, {})
    (flags,) = re.findall(r"leapmpi-prep import graph.npz graph.h5 (--features identity.+)", page)
    graph = imported("graph.npz", *flags.split())
    assert (graph.vertices, graph.edges, graph.classes) == (34, 2 * 78, 2)
    assert graph.edge_data.weight.max() == 7
