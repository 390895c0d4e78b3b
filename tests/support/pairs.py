"""Few cases that together hold every pair of option values that may meet."""

from collections.abc import Mapping, Sequence, Set
from itertools import combinations, product

Pair = frozenset
"""Two (option, value)."""


def pair(a: str, x: object, b: str, y: object) -> Pair:
    """Value `x` of option `a` with value `y` of option `b`."""
    return frozenset({(a, x), (b, y)})


def pairwise(options: Mapping[str, Sequence], excluded: Set[Pair] = frozenset()) -> list[dict]:
    """Cases (option -> value) such that any two values of two options meet in one, but for those `excluded`.

    Greedy: each case starts from the first pair still missing and takes for every other option the value that adds
    most missing pairs. The same options give the same cases.
    """
    # A dict keeps the order, which a set of strings does not.
    missing = dict.fromkeys(each for each in _all_pairs(options) if each not in excluded)
    cases = []
    while missing:
        case = dict(sorted(next(iter(missing)), key=lambda held: list(options).index(held[0])))
        for name in options:
            if name in case:
                continue
            fitting = [value for value in options[name] if not excluded & set(_pairs_with(case, name, value))]
            gains = [sum(each in missing for each in _pairs_with(case, name, value)) for value in fitting]
            case[name] = fitting[gains.index(max(gains))]
        for each in _pairs(case):
            missing.pop(each, None)
        cases.append({name: case[name] for name in options})
    return cases


def full_product(options: Mapping[str, Sequence], excluded: Set[Pair] = frozenset()) -> list[dict]:
    """All combinations of values without an excluded pair."""
    cases: list[dict] = [{}]
    for name, values in options.items():
        cases = [
            {**case, name: value}
            for case in cases
            for value in values
            if not excluded & set(_pairs_with(case, name, value))
        ]
    return cases


def _all_pairs(options: Mapping[str, Sequence]) -> list[Pair]:
    return [pair(a, x, b, y) for a, b in combinations(options, 2) for x, y in product(options[a], options[b])]


def _pairs(case: dict) -> list[Pair]:
    return [frozenset(held) for held in combinations(case.items(), 2)]


def _pairs_with(case: dict, name: str, value: object) -> list[Pair]:
    return [frozenset({held, (name, value)}) for held in case.items()]
