"""Commands on the page of imports do what the page says."""

import shlex
import subprocess
import sys

import pytest

from tests.support.documentation import commands


def test_networkx(imported, tmp_path, monkeypatch):
    pytest.importorskip("networkx")
    monkeypatch.chdir(tmp_path)
    write, read = (
        command.words for command in commands("data_prep/IMPORT.md") if "karate" in shlex.join(command.words)
    )
    subprocess.run([sys.executable, *write[1:]], check=True, timeout=60)
    graph = imported(read[2], *read[4:])
    assert (graph.vertices, graph.edges, graph.classes) == (34, 2 * 78, 2)
    assert graph.edge_data.weight.max() == 7
