"""jobs/configs: every file is a valid config or sweep; every recipe stands in the README, with a published figure."""

import pytest

from leapmpi.config.schema import Config
from leapmpi.config.sweep_file import read_sweep
from leapmpi.config.toml import read_toml
from tests.support.launch import PROJECT

FOLDER = PROJECT / "jobs/configs"
CONFIGS = sorted(path for path in FOLDER.rglob("*.toml") if path.name != "graphs.toml")
SWEEPS = [path for path in CONFIGS if path.parent.name in ("leapgnn", "samplers")]
RECIPES = [path for path in CONFIGS if path.parent.name == "recipes"]


def test_every_folder_of_configs_is_known_here():
    assert {path.parent.name for path in CONFIGS} == {"accuracy", "leapgnn", "recipes", "samplers"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_is_valid(path, tmp_path):
    if path in SWEEPS:
        sweep = read_sweep(path)
        shared = Config().assigned(sweep.base, str(path))
        assert [sweep.config(index, shared, tmp_path) for index in range(len(sweep.points))]
    else:
        Config.from_values(read_toml(path), str(path))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_readme_has_a_published_figure_for_each_recipe(path):
    rows = [line.split("|") for line in (FOLDER / "recipes/README.md").read_text().splitlines() if line[:1] == "|"]
    (row,) = [row for row in rows if f"`{path.stem}`" in row[1]]
    assert any(character.isdigit() for character in row[3])
    assert row[-2].strip() == "not run here"
