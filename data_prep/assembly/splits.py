"""Splits of the vertices: the source's choice, a folder of ids, or a draw by a published protocol."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.assembly.vertex_data import labelled
from data_prep.edges.raw_graph import SPLIT_NAMES, whole_numbers
from data_prep.formats.array_files import read_ids
from leapmpi.dataset.hdf5.names import NO_SPLIT, TEST, TRAIN, VAL
from leapmpi.errors import ConfigError, DataError, counted, nearest

_CODES = dict(zip(SPLIT_NAMES, (TRAIN, VAL, TEST), strict=True))
_RULES = ("source", "random", "per-class")

_FOLDERS = ("splits", "split")
_FILES = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
_ENDS = ("-idx", "_idx", "_ids", "")
_SUFFIXES = (".npy", ".csv", ".csv.gz", ".txt")
"""Names of files of splits: one of _FILES, of _ENDS and of _SUFFIXES."""


@dataclass(frozen=True)
class SplitRule:
    """A parsed --splits: kind "source", "folder", "random" (shares) or "per-class" (counts)."""

    kind: str
    text: str
    folder: Path | None = None
    numbers: tuple[float, ...] = ()


def parse_rule(text: str) -> SplitRule:
    """Parse the rule that `--splits text` names. Raises ConfigError for an unknown form."""
    kind, _, rest = text.partition(":")
    if text == "source":
        return SplitRule("source", text)
    # A folder may have the name of a rule.
    if kind in ("random", "per-class") and not Path(text).exists():
        return _parse_draw(kind, rest, text)
    if Path(text).is_dir():
        return SplitRule("folder", text, Path(text))
    if re.fullmatch(r"[\d.]+(,[\d.]+){2}", text):
        raise ConfigError(f"--splits {text}: for random shares give --splits random:{text}")
    raise ConfigError(
        f"--splits {text}: no such folder, and no rule of that name ({nearest(kind, _RULES)}); "
        "expected source, a folder, random:TRAIN,VAL,TEST or per-class:TRAIN,VAL"
    )


def _parse_draw(kind: str, rest: str, text: str) -> SplitRule:
    """Parse the rule random:SHARES or per-class:COUNTS. Raises ConfigError for impossible numbers."""
    try:
        numbers = tuple((float if kind == "random" else int)(part) for part in rest.split(","))
    except ValueError:
        numbers = ()
    if kind == "random":
        if len(numbers) != 3 or min(numbers) < 0 or numbers[0] == 0 or not sum(numbers) <= 1 + 1e-9:
            raise ConfigError(
                f"--splits {text}: random takes three shares TRAIN,VAL,TEST that add up to at most 1, "
                "such as random:0.6,0.2,0.2"
            )
    elif len(numbers) != 2 or numbers[0] < 1 or numbers[1] < 0:
        raise ConfigError(
            f"--splits {text}: per-class takes training and validation vertices per class: per-class:20,30"
        )
    return SplitRule(kind, text, None, numbers)


def split_files(folder: Path) -> dict[str, Path]:
    """Find the files of splits in `folder`, by split: train-idx.npy and the like under the names in `_FILES`."""
    stems = {split: [f"{name}{end}" for name in names for end in _ENDS] for split, names in _FILES.items()}
    places = {
        split: [folder / f"{stem}{suffix}" for stem in found for suffix in _SUFFIXES] for split, found in stems.items()
    }
    found = {split: next((file for file in files if file.is_file()), None) for split, files in places.items()}
    return {split: file for split, file in found.items() if file}


def folder_within(source: Path) -> Path | None:
    """Return the folder of splits in the folder `source`: the first of `_FOLDERS` with a training split, or None."""
    return next((source / name for name in _FOLDERS if "train" in split_files(source / name)), None)


def read_folder(folder: Path) -> dict[str, np.ndarray]:
    """Read ids int64 (or masks bool) from the files of splits in `folder`; validation and test may be missing.

    Raises DataError when there is no training file or one cannot be read.
    """
    files = split_files(folder)
    if "train" not in files:
        raise DataError(
            f"{folder} has no train-idx.npy; a split folder holds train-idx.npy, val-idx.npy and test-idx.npy"
        )
    return {split: read_ids(file) for split, file in files.items()}


def codes_of(splits: dict[str, np.ndarray], vertices: int, labels: np.ndarray | None, where: str) -> np.ndarray:
    """Return int8[n] of format.NO_SPLIT, TRAIN, VAL, TEST from ids (or bool masks) by split name.

    Raises DataError when a split is empty, overlaps another, has an id out of range or twice, or an unlabelled member.
    """
    codes = np.full(vertices, NO_SPLIT, np.int8)
    if "train" not in splits:
        raise DataError(f"{where}: there is a {' and a '.join(splits)} split but no training split")

    # One split after the other; a vertex that has a code already is in two.
    for name in SPLIT_NAMES:
        if name not in splits:
            continue
        ids = _ids(splits[name], vertices, name, where)
        taken = ids[codes[ids] != NO_SPLIT]
        if len(taken):
            other = SPLIT_NAMES[codes[taken[0]] - 1]
            raise DataError(
                f"{where}: the {other} and {name} splits overlap in {counted(len(taken), 'vertex')}, e.g. vertex "
                f"{taken[0]}"
            )
        codes[ids] = _CODES[name]

    # Members need a label.
    if labels is not None:
        unlabelled = np.flatnonzero(~labelled(labels) & (codes != NO_SPLIT))
        if len(unlabelled):
            name = SPLIT_NAMES[codes[unlabelled[0]] - 1]
            raise DataError(
                f"{where}: vertex {unlabelled[0]} is in the {name} split but has no label "
                f"({counted(len(unlabelled), 'such vertex')}); take unlabelled vertices out of the splits"
            )
    return codes


def _ids(members: np.ndarray, vertices: int, name: str, where: str) -> np.ndarray:
    """Return the vertex ids of a split, from ids or a mask. Raises DataError for none, bad or repeated ones."""
    if members.ndim != 1:
        raise DataError(f"{where}: the {name} split must be a list of ids or a mask, but its shape is {members.shape}")
    if members.dtype == bool:
        if len(members) != vertices:
            raise DataError(
                f"{where}: the {name} mask has {counted(len(members), 'entry')} for {counted(vertices, 'vertex')}"
            )
        members = np.flatnonzero(members)
    if len(members) == 0:
        raise DataError(f"{where}: the {name} split is empty; leave it out to go without")

    # Every id in range, and once.
    ids = whole_numbers(members, f"{where}: the {name} split")
    bad = (ids < 0) | (ids >= vertices)
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{where}: the {name} split, row {row}: id {ids[row]} is outside 0 ... {vertices - 1}")
    ordered = np.sort(ids)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise DataError(f"{where}: the {name} split names vertex {twice[0]} more than once")
    return ids


def draw(rule: SplitRule, labels: np.ndarray | None, classes: int, seed: int) -> np.ndarray:
    """Draw int8[n] by a "random" or "per-class" rule from the labelled vertices; a seed always gives the same split.

    per-class: Shchur et al., "Pitfalls of Graph Neural Network Evaluation" (arXiv:1811.05868), section 3: a number of
    training and of validation vertices of every class, the rest is for testing.
    Raises DataError when there are no labels, or too few for the rule.
    """
    if labels is None:
        raise DataError(f"--splits {rule.text}: the graph has no labels to train on, so it cannot be split")
    order = np.random.default_rng(seed).permutation(np.flatnonzero(labelled(labels)))
    if rule.kind == "random":
        # Each split takes its share of `order`, one after the other.
        codes = np.full(len(labels), NO_SPLIT, np.int8)
        ends = np.rint(np.cumsum(rule.numbers) * len(order)).astype(np.int64)
        for name, share, start, stop in zip(SPLIT_NAMES, rule.numbers, [0, *ends[:-1]], ends, strict=True):
            if share > 0 and stop <= start:
                raise DataError(
                    f"--splits {rule.text}: with {counted(len(order), 'labelled vertex')} the {name} split is empty"
                )
            codes[order[start:stop]] = _CODES[name]
        return codes
    if labels.ndim == 2:
        raise DataError(f"--splits {rule.text}: per-class needs one label per vertex, and this graph is multi-label")
    return _draw_per_class(rule, order, labels, classes)


def _draw_per_class(rule: SplitRule, order: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Assign codes int8[n]: of each class the first members in `order` train, the next validate, the rest test."""
    codes = np.full(len(labels), NO_SPLIT, np.int8)
    # The rest is for testing; the first ones of each class are taken out below.
    codes[order] = TEST
    train, val = (int(number) for number in rule.numbers)
    for label in range(classes):
        members = order[labels[order] == label]
        if 0 < len(members) < train + val:
            raise DataError(
                f"--splits {rule.text}: class {label} has {counted(len(members), 'labelled vertex')}, "
                f"fewer than {train} + {val}; use fewer per class"
            )
        codes[members[:train]] = TRAIN
        codes[members[train : train + val]] = VAL
    if not (codes == TEST).any():
        raise DataError(f"--splits {rule.text}: no vertex is left for the test split; use fewer per class")
    return codes
