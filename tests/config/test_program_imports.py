"""What commands leave out of torch, and that code of others finds all of it."""

import json
import subprocess
import sys
from types import ModuleType

import pytest

from leapmpi.config import program_imports
from leapmpi.config.program_imports import complete_torch

_OWN_CODE = """
import torch

class Own:
    # An operation whose form without data torch knows by the module that commands leave out.
    shape = tuple(torch.linalg.matrix_exp(torch.empty(2, 2, device="meta")).shape)
"""

_SCRIPT = """
import json, sys
from leapmpi.config.program_imports import program_imports
from leapmpi.config.user_code import load_named
with program_imports():
    import torch
left_out = "torch._meta_registrations" not in sys.modules and not hasattr(torch, "_meta_registrations")
shape = load_named("own.py:Own", "--model").shape
print(json.dumps([left_out, shape, hasattr(torch, "_meta_registrations")]))
"""


def test_code_of_a_user_finds_all_of_torch(tmp_path):
    (tmp_path / "own.py").write_text(_OWN_CODE)
    found = subprocess.run([sys.executable, "-c", _SCRIPT], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout, found.stderr
    assert json.loads(found.stdout) == [True, [2, 2], True]


@pytest.mark.parametrize(("loaded", "plugins"), [(True, False), (False, True)])
def test_nothing_is_left_out_where_torch_is_loaded_or_plugins_are_there(monkeypatch, loaded, plugins):
    monkeypatch.setattr(program_imports, "plugins_installed", lambda: plugins)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    if loaded:
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    before = dict(sys.modules)
    with program_imports.program_imports():
        assert sys.modules == before


def test_where_torch_is_not_loaded_none_is_completed(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "torch._meta_registrations", raising=False)
    complete_torch()
    assert "torch._meta_registrations" not in sys.modules
