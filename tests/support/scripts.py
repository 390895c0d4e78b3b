"""Scripts of `jobs` run in this process: another one takes a second or two of the processor to start."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from leapmpi.nn.kernels.kernel_choice import set_stand_in
from tests.support.launch import PROJECT


def run_here(
    script: Path, arguments: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> subprocess.CompletedProcess[str]:
    """Run the Python script `script`, and return its exit code and what it printed."""
    capsys.readouterr()
    command = [str(script), *map(str, arguments)]
    code: object = 0
    before = set(sys.modules)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", command)
        # Where Python finds the modules beside a script that it is started with.
        patch.syspath_prepend(script.parent)
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            code = end.code
        finally:
            # A process of its own would have ended with its choice of kernels.
            set_stand_in(False)
    # Folders of scripts have modules of the same names.
    for name in set(sys.modules) - before:
        if str(PROJECT / "jobs") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    output, errors = capsys.readouterr()
    if isinstance(code, str):
        code, errors = 1, f"{errors}{code}\n"
    return subprocess.CompletedProcess(command, int(code or 0), output, errors)
