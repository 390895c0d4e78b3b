"""Registries: modules of a folder and plug-ins of other distributions are members."""

import pytest

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import Setting, setting
from leapmpi.errors import ConfigError
from leapmpi.plan.root_assignment import MergeRule
from leapmpi.registry import Registry, plugins_installed

PACKAGE = "leapmpi.plan.merging"


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An installed distribution with a merge rule of its own, and one under the name of a rule of leapmpi."""
    (tmp_path / "their_rules.py").write_text(
        "from leapmpi.plan.root_assignment import MergeRule\nMEMBER = MergeRule('theirs')\n"
    )
    about = tmp_path / "their_rules-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-rules\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{PACKAGE}]\ntheirs = their_rules\npaper = their_rules\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_modules_of_the_package_are_members():
    registry = Registry("sampler", "leapmpi.sampling.samplers", SamplerMember)
    assert {"node-wise", "labor-0"} <= set(registry.names())
    assert registry.load("labor-0").build.__module__ == "leapmpi.sampling.samplers.labor_0"


def test_plug_ins_join_by_entry_points(plugin):
    assert plugins_installed()
    registry = Registry("merge rule", PACKAGE, MergeRule)
    assert registry.names() == ["balanced", "paper", "random", "theirs"]
    assert registry.load("theirs").merge == "theirs"
    assert registry.load("paper").merge.__module__ == f"{PACKAGE}.paper", "a plug-in took the place of a member"
    declared = setting("paper", "merge rule", registry=PACKAGE, also=("auto",)).metadata
    assert Setting("strategy.merge", str, "paper", declared).choices()[-2:] == ("theirs", "auto")


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match="unknown merge rule 'papre'; did you mean 'paper'"):
        Registry("merge rule", PACKAGE, MergeRule).load("papre")


def test_a_module_without_a_member_of_the_kind_is_refused(tmp_path, monkeypatch):
    (tmp_path / "bare.py").write_text("merge = 'bare'\n")
    monkeypatch.setattr("leapmpi.plan.merging.__path__", [str(tmp_path)])
    with pytest.raises(ConfigError, match=r"merge rule bare: .*bare\.py offers no member; write MEMBER = MergeRule"):
        Registry("merge rule", PACKAGE, MergeRule).load("bare")


def test_a_misspelt_field_is_an_error():
    with pytest.raises(TypeError, match="shraded"):
        SamplerMember(dict, shraded="lists")
