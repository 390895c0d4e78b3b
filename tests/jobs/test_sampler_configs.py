"""jobs/configs/samplers: the sweeps are valid and cover all samplers."""

import pytest

from leapmpi.config.options import SAMPLERS
from leapmpi.config.schema import Config
from leapmpi.config.sweep_file import read_sweep
from tests.support.launch import PROJECT

FOLDER = PROJECT / "jobs/configs/samplers"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_sampler_is_trained_and_its_options_are_accepted(path, tmp_path):
    sweep = read_sweep(path)
    shared = Config().assigned(sweep.base, str(path))
    configs = [sweep.config(index, shared, tmp_path) for index in range(len(sweep.points))]
    # The edges of these graphs have no times.
    assert {config.sampling.sampler for config in configs} == set(SAMPLERS.names()) - {"temporal"}
    assert len({config.run.folder for config in configs}) == len(configs)
    assert f"leapmpi sweep jobs/configs/samplers/{path.name}" in path.read_text()
