"""Config: TOML there and back, where values come from, and every unusable value refused in one sentence."""

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leapmpi.cli.commands import train
from leapmpi.config.flags import config_from
from leapmpi.config.parser import parser_of
from leapmpi.config.schema import Config
from leapmpi.config.sections import fields
from leapmpi.config.setting import ALL_NEIGHBOURS
from leapmpi.config.toml import read_toml, to_toml
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import ConfigError
from leapmpi.nn.model import model_of

CHANGED = {
    "data": 'a "quoted" \\ folder\twith \N{SNOWMAN} and \U000e0001',
    "model": {"name": "gat", "hidden": 24, "heads": 3, "dropout": 0.1, "norm": "layer", "residual": True},
    "sampling.fanout": [5, "all"],
    "strategy": {"name": "pull", "time_steps": 1},
    "train": {"lr": 1e-05, "epochs": 3, "seed": 2**63 - 1, "warmup_epochs": 2},
    "evaluate": {"fanout": ["all", "all"], "metric": "f1-micro"},
    "run": {"folder": "runs/a", "overwrite": True},
}

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
fanouts = st.lists(st.sampled_from([1, 25, 2**31 - 1, "all"]), min_size=1, max_size=5)


def parsed(*arguments):
    return config_from(parser_of("leapmpi", "train", train).parse_strictly(arguments))


@pytest.mark.parametrize("config", [Config(), Config.from_values(CHANGED)])
def test_toml_there_and_back(config):
    assert Config.from_values(tomllib.loads(to_toml(config))) == config


@given(text, fanouts, st.floats(1e-300, 1e300), st.integers(0, 2**63 - 1))
def test_any_values_there_and_back(data, fanout, rate, seed):
    config = Config.from_values({"data": data, "sampling.fanout": fanout, "train": {"lr": rate, "seed": seed}})
    assert Config.from_values(tomllib.loads(to_toml(config))) == config


def test_a_withdrawn_setting_is_accepted_at_its_default_alone():
    assert Config.from_values({"strategy": {"wire_dtype": "native"}}) == Config()
    with pytest.raises(ConfigError, match=r"old.toml: leapmpi no longer has strategy.wire_dtype: .*--feature-dtype"):
        Config.from_values({"strategy.wire_dtype": "int8"}, "old.toml")


def test_a_flag_for_every_setting_gives_what_toml_gives(tmp_path):
    config, flags = Config.from_values(CHANGED), []
    values = {f"{section}.{name}": value for section, entries in config.to_values().items() if section != "data"
              for name, value in entries.items()}  # fmt: skip
    for key, setting in fields():
        if key == "data":
            continue
        value = values[key]
        if setting.type is bool:
            flags.append(f"--{setting.flag}" if value else f"--no-{setting.flag}")
        else:
            listed = value if isinstance(value, tuple) else [value]
            listed = ["all" if isinstance(value, tuple) and x == ALL_NEIGHBOURS else str(x) for x in listed]
            flags.append(f"--{setting.flag}={','.join(listed)}")
    assert parsed(config.data, *flags) == config
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert parsed("--config", str(path)) == config


def test_flags_win_over_set_over_file_over_defaults(tmp_path):
    path = tmp_path / "base.toml"
    path.write_text('data = "d"\n[train]\nlr = 0.5\nepochs = 7\nbatch_size = 9\n')
    config = parsed("--config", str(path), "--set", "train.epochs=8", "--set", "train.batch_size=10", "--epochs", "11")
    assert (config.train.lr, config.train.batch_size, config.train.epochs) == (0.5, 10, 11)
    assert (config.data, config.train.optimizer) == ("d", "adam")
    assert parsed("other", "--config", str(path)).data == "other"


def test_given_twice_the_last_one_counts():
    config = parsed("d", "--lr", "1", "--lr", "2", "--set", "train.seed=1", "--set", "train.seed=2")
    assert (config.train.lr, config.train.seed) == (2.0, 2)


def test_a_choice_may_have_a_file():
    given = Config.from_values({"data": "d", "link.negatives": "hard:some/false edges.txt"})
    assert given.link.negatives == "hard:some/false edges.txt"
    for value in ("hard", "hard:"):
        with pytest.raises(ConfigError, match="hard needs a file; give hard:FILE"):
            Config.from_values({"data": "d", "link.negatives": value})
    with pytest.raises(ConfigError, match="unknown value 'uniform:x'"):
        Config.from_values({"data": "d", "link.negatives": "uniform:x"})


def test_values_need_to_fit_together_only_when_all_sources_are_heard(tmp_path):
    path = tmp_path / "base.toml"
    path.write_text('[model]\nname = "gat"\nhidden = 10\n[evaluate]\nfanout = [1, 2, 3]\n')
    config = parsed("--config", str(path), "--fanout", "4,5,6", "--set", "model.options.heads=5")
    assert (config.model.hidden, config.model.options, config.sampling.fanout) == (10, ("heads=5",), (4, 5, 6))
    assert parsed("--hidden", "9", "--model-option", "heads=3", "--model", "gat").model.hidden == 9
    with pytest.raises(ConfigError, match=r"evaluate.fanout has a length of 3"):
        parsed("--config", str(path))


def test_heads_are_checked_where_a_model_is_built(small_data):
    # One layer averages its heads, and any width will do.
    one = {"data": str(small_data), "model": {"name": "gat", "hidden": 30}, "sampling.fanout": [10]}
    two = Config.from_values({**one, "sampling.fanout": [10, 10]})
    assert len(model_of(Config.from_values(one), open_dataset(small_data)).layers) == 1
    with pytest.raises(ConfigError, match=r"model.hidden \(30\) must be a multiple of --model-option heads \(4\)"):
        model_of(two, open_dataset(small_data))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[model]\nnam = 'gcn'", "unknown key 'model.nam'; did you mean 'model.name'?"),
        ("[model]\nbatch_size = 4", "unknown key 'model.batch_size'; did you mean 'train.batch_size'?"),
        ("[evaluation]\nlimit = 4", "unknown key 'evaluation.limit'; did you mean 'evaluate.limit'?"),
        ("[modle]\nname = 'gcn'", "unknown key 'modle.name'; did you mean 'model.name'?"),
        ("lr = 1", "unknown key 'lr'; did you mean 'train.lr'?"),
        ("model = 'sage'", "model is a section, not a value; set one of its keys: model.name,"),
        ("[[train]]\nlr = 1", "train is a section, not a value"),
        ("[train.lr]\nx = 1", "unknown key 'train.lr.x'; did you mean 'train.lr'?"),
        ("[train\nlr = 1", "not a valid TOML file"),
        ("[train]\nlr = 1\nlr = 2", "not a valid TOML file"),
        ("x = " + "[" * 3000 + "]" * 3000, "not a valid TOML file: its values are nested too deeply"),
        ("[train]\nlr = 'x'", "train.lr: 'x' is not a number"),
        ("[train]\nlr = true", "train.lr: True is not a number"),
        ("[train]\nlr = [1]", "train.lr: [1] is not a number"),
        ("[train]\nlr = nan", "train.lr: nan is not a finite number"),
        ("[train]\nlr = 1" + "0" * 400, "is not a finite number"),
        ("[train]\nlr = -0.1", "train.lr: -0.1 is too small; it must be greater than 0"),
        ("[train]\nlr = 0", "train.lr: 0.0 is too small"),
        ("[train]\nepochs = 1.0", "train.epochs: 1.0 is not a whole number"),
        ("[train]\nepochs = 1979-05-27", "is not a whole number"),
        ("[train]\nbatch_size = 0", "train.batch_size: 0 is too small; the least is 1"),
        ("[train]\nbatch_size = 9223372036854775808", "is too large; it must be less than 9223372036854775808"),
        ("[train]\nbatch_size = 1" + "0" * 400, "is too large; it must be less than 9223372036854775808"),
        ("[train]\noptimizer = 'adm'", "train.optimizer: unknown value 'adm'; did you mean 'adam'?"),
        ("[run]\nthreads = 100000", "run.threads: 100000 is too large; it must be less than 1025"),
        ("[run]\nfolder = [1]", "run.folder: [1] is not text"),
        ('[run]\nfolder = "a\\u0000b"', "holds characters that are not text"),
        ("[run]\noverwrite = 'maybe'", "'maybe' is neither true nor false"),
        ("[model]\nname = 'sag'", "unknown model 'sag'; did you mean 'sage'?"),
        ("[strategy]\nname = 'leep'", "unknown strategy 'leep'; did you mean 'leap'?"),
        ("[strategy]\ntime_steps = 1.0", "strategy.time_steps: 1.0 is not text"),
        ("[strategy]\ntime_steps = 0", "'0' is not a number of time steps"),
        ("[sampling]\nfanout = []", "sampling.fanout: no fan-out given"),
        ("[sampling]\nfanout = [10, 0]", "'0' is not a fan-out; give whole numbers"),
        ("[sampling]\nfanout = [1, [2]]", "'[2]' is not a fan-out"),
        ("[sampling]\nfanout = [true]", "'True' is not a fan-out"),
        ("[sampling]\nfanout = 'ten'", "'ten' is not a fan-out"),
        ("[sampling]\nfanout = 2147483648", "'2147483648' is not a fan-out; give whole numbers from 1 to 2**31 - 1"),
        ("[evaluate]\nfanout = [5, 5, 5]", "evaluate.fanout has a length of 3, but the model's number of layers is 2"),
    ],
)
def test_unusable_files_and_values(tmp_path, toml, message):
    path = tmp_path / "bad.toml"
    path.write_text(toml)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        Config.from_values(read_toml(path), str(path))
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    for name, message in (
        ("none.toml", "no such config file"),
        ("binary.toml", "not a valid TOML"),
        (".", "cannot be"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_toml(tmp_path / name)


def test_a_device_without_end_is_not_read_to_its_end():
    with pytest.raises(ConfigError, match="/dev/zero: longer than 10,000,000 characters, which no config file is"):
        read_toml("/dev/zero")


def test_a_text_of_windows_is_read(tmp_path):
    (tmp_path / "config.toml").write_bytes("\ufeff[train]\r\nepochs = 3\r\n".encode())
    assert read_toml(tmp_path / "config.toml") == {"train": {"epochs": 3}}


@pytest.mark.parametrize("fanout", ["", ",", "10;10", "1.5", "-1", "ALL", "0", "1,,2", "\u0663"])
def test_fanouts_that_are_none(fanout):
    with pytest.raises(ConfigError, match=r"^--fanout: sampling.fanout: .*(not a|no) fan-out"):
        parsed("d", f"--fanout={fanout}")


def test_file_names_that_are_not_utf8_are_refused():
    with pytest.raises(ConfigError, match="holds characters that are not text"):
        parsed(b"data-\xff".decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(("text", "number"), [("all", ALL_NEIGHBOURS), ("5", 5)])
def test_one_fanout_of_evaluation_serves_all_hops(text, number):
    config = Config.from_values({"sampling.fanout": "10,5,3", "evaluate.fanout": text})
    assert config.evaluation_fanout == (number,) * 3
    assert config.replaced({"evaluate.fanout": "7,8,9"}).evaluation_fanout == (7, 8, 9)
    assert Config.from_values({"sampling.fanout": "10"}).evaluation_fanout == (10,)  # a model of one layer
