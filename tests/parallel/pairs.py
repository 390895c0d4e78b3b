"""Few cases that together hold every pair of option values."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product


def pairwise(options: Mapping[str, Sequence]) -> list[dict]:
    """Cases (option -> value) such that any two values of two options meet in one. The same options, the same cases.

    Greedy: each case starts from the first pair still missing and takes for every other option the value that adds
    most missing pairs.
    """
    names = list(options)
    missing = {
        ((a, x), (b, y)): None for a, b in combinations(names, 2) for x, y in product(options[a], options[b])
    }  # a dict keeps the order, which a set of strings does not
    cases = []
    while missing:
        case = dict(next(iter(missing)))
        for name in names:
            if name not in case:
                case[name] = max(options[name], key=lambda value, name=name: _gain(case, name, value, names, missing))
        for pair in _pairs(case, names):
            missing.pop(pair, None)
        cases.append({name: case[name] for name in names})
    return cases


def full_product(options: Mapping[str, Sequence]) -> list[dict]:
    """All combinations of values."""
    return [dict(zip(options, values, strict=True)) for values in product(*options.values())]


def _gain(case: dict, name: str, value: object, names: list[str], missing: dict) -> int:
    extended = {**case, name: value}
    return sum(pair in missing for pair in _pairs(extended, names) if (name, value) in pair)


def _pairs(case: dict, names: list[str]) -> list[tuple]:
    held = [(name, case[name]) for name in names if name in case]
    return list(combinations(held, 2))
