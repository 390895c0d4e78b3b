"""Section about the dataset: size, connectivity, labels, cut, and findings that may impair training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from leapmpi.dataset.hdf5.names import RELATION_LIST, VERTEX_TYPE_LIST
from leapmpi.report.figures import (
    MOST_CELLS,
    BarFigure,
    Figure,
    HeatFigure,
    Line,
    LineFigure,
    SchemaFigure,
    SchemaRelation,
    SchemaType,
)
from leapmpi.report.markup import Markup, bullets, facts, note, table
from leapmpi.report.numbers import COUNT, SHARE, shown
from leapmpi.report.page import Section
from leapmpi.report.rows_by_time import BINS, are_dates, time_text

_MOST_CLASSES = 40
_MOST_LINES = 10
_YEAR = 31_556_952
"""Seconds of a year, in the mean."""

_MOST_TYPES = 40
_MOST_DRAWN, _MOST_PAIRS = 12, 24
"""Most types, and pairs of types with a relation, that are drawn as boxes with arrows."""


def section(health: Mapping[str, Any] | None, names: Sequence[str] = (), command: str = "") -> Section:
    """Return the section of the findings of `dataset_health.health`; `names` are class names, if known.

    Without findings, `command` examines the dataset.
    """
    if health is None:
        known = f"Not examined: {command} does so." if command else "Not examined: the run does not know its dataset."
        return Section("Dataset", [note(known)])
    figures: list[Figure] = [_degrees(health)]
    if health["class_counts"]:
        figures.append(_classes(health, names))
    if health["cut"]:
        figures.append(_parts(health))
    sentences = [sentence for _, sentence in findings(health)]
    content = [bullets(sentences or ["No problems found."]), facts(_facts(health))]
    if VERTEX_TYPE_LIST in health:
        content += _schema_tables(health)
        figures += _schema(health)
    if health.get("times"):
        figures.append(_times(health["times"]))
    return Section("Dataset", content, figures)


def findings(health: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return findings that may impair training: 'bad' or 'fair', and a sentence."""
    return list(_findings(health))


def _findings(health: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    # The topology is the training split of a dataset with edge splits.
    if not health["edge_splits"]:
        if not health["splits"].get("train"):
            yield "bad", "The training split is empty: nothing can be trained on vertices; import with a split."
        elif not health["splits"].get("val"):
            yield "fair", "The validation split is empty: the last epoch counts as the best."
    yield from _of_vertices(health)
    yield from _of_labels(health)

    # Remote neighbours and uneven parts make every iteration slower.
    cut = _cut_share(health)
    if cut is not None and cut > 0.5:
        sentence = f"{shown(cut, SHARE)} of the edges cross parts: most neighbours are remote"
        yield "fair", f"{sentence}; leapmpi-prep compare shows which --method cuts fewer."
    for name, what in (("training_balance", "training vertices"), ("vertex_balance", "vertices")):
        if (largest := health.get(name, 1.0)) > 1.2:
            yield (
                "fair",
                f"The largest part has {shown(largest)} times the mean of {what}: the other ranks wait for its rank.",
            )


def _of_vertices(health: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield findings about isolated vertices and useless feature rows."""
    vertices, features = max(1, health["vertices"]), health["features"]
    isolated, alone = health["isolated"] / vertices, health["no_in_neighbours"] / vertices
    if isolated > 0.05:
        level = "bad" if isolated > 0.10 else "fair"
        yield level, f"{shown(isolated, SHARE)} of the vertices have no neighbour: a graph network cannot help there."
    if alone > 0.10 and alone > 2 * isolated:
        sentence = f"{shown(alone, SHARE)} of the vertices have no in-neighbour and see only themselves"
        yield "fair", f"{sentence}; import without --directed if edges mean the same both ways."
    if undefined := features["undefined"]:
        yield "bad", f"{undefined:,} feature rows hold an infinite or undefined number; correct the source."
    zero = features["all_zero"] / max(1, features["examined"])
    if zero > 0.10:
        level = "bad" if zero > 0.90 else "fair"
        yield level, f"{shown(zero, SHARE)} of the feature rows are all zero: missing, or never filled in."


def _of_labels(health: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    counts = [count for count in health["class_counts"] if count]
    if len(counts) > 1 and (ratio := max(counts) / min(counts)) > 10:
        sentence = f"The most frequent class has {shown(ratio)} times the vertices of the rarest"
        yield "fair", f"{sentence}; --class-weights balanced and --metric f1-macro give rare classes weight."
    if empty := sum(not count for count in health["class_counts"]):
        yield "fair", f"{empty} of {len(health['class_counts'])} classes have no vertex."
    found, chance = health["homophily"], shown(health["homophily_by_chance"], SHARE)
    if found is not None and found < 0.3:
        sentence = f"Only {shown(found, SHARE)} of the edges join vertices of one class (by chance {chance})"
        yield "fair", f"{sentence}; a model that separates a vertex from its neighbours (sage) may score better."


def _cut_share(health: Mapping[str, Any]) -> float | None:
    if not health["cut"]:
        return None
    return sum(part["from_elsewhere"] for part in health["cut"]) / max(1, health["edges"])


def _facts(health: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    vertices, features = max(1, health["vertices"]), health["features"]

    def share(count: float) -> str:
        return f"{shown(count, COUNT)} ({shown(count / vertices, SHARE)})"

    yield "graph (content)", health["graph_uuid"] or "-"
    yield "vertices, edges", f"{health['vertices']:,}, {health['edges']:,}"
    yield (
        "in-degree",
        f"median {health['degree_median']:,}, 99 % up to {health['degree_p99']:,}, "
        f"largest {health['degree_largest']:,}",
    )
    if largest := health.get("largest"):
        yield "largest in-degrees", ", ".join(f"{each['vertex']} ({each['in_degree']:,})" for each in largest)
    yield "isolated", share(health["isolated"])
    yield "without in-neighbours", share(health["no_in_neighbours"])
    yield "nobody's in-neighbour", share(health["never_read"])
    yield "splits", ", ".join(f"{name} {count:,}" for name, count in health["splits"].items())
    if times := health.get("times"):
        dates = are_dates(times)
        for name, (first, last, count) in times["splits"].items():
            yield f"times of {name}", f"{time_text(first, dates)} to {time_text(last, dates)}: {count:,} rows"
    if held := health["edge_splits"]:
        yield "edges held back", ", ".join(f"{name} {count:,}" for name, count in held.items())
    if health["label_kind"]:
        yield "labels", f"{health['label_kind']}, {health['classes']}; labelled {share(health['labelled'])}"
    if health["homophily"] is not None:
        chance = shown(health["homophily_by_chance"], SHARE)
        yield "homophily", f"{shown(health['homophily'], SHARE)} of edges join one class; by chance {chance}"
    # Of a large graph only some rows are examined: without their number none would mean nothing.
    if examined := features["examined"]:
        zero = f"{features['all_zero']:,} of {examined:,} examined rows are all zero"
        yield "features (by type)" if VERTEX_TYPE_LIST in health else f"features ({health['feature_dim']})", zero
    cut = _cut_share(health)
    if cut is not None:
        yield "edges between parts", shown(cut, SHARE)
        yield "replication", f"a vertex is needed by {shown(health.get('replication'))} parts on average"
    if shares := str(health.get("cut_on_ranks", "")):
        pairs = (each.partition(":") for each in shares.split())
        yield "the same by number of ranks", ", ".join(f"{n}: {shown(float(part), SHARE)}" for n, _, part in pairs)
    for name, what in (
        ("method", "partitioned by"),
        ("vertex_order", "order of vertices in a part"),
        ("vertex_balance", "largest part over mean, vertices"),
        ("training_balance", "largest part over mean, training vertices"),
        ("edge_balance", "largest part over mean, edges"),
        ("micrograph_locality", "R_micro"),
        ("leap_remote_rows", "remote rows of an iteration, leap"),
        ("pull_remote_rows", "remote rows of an iteration, pull"),
    ):
        if name in health:
            yield what, health[name] if isinstance(health[name], str) else shown(health[name])


def _times(times: Mapping[str, Any]) -> LineFigure:
    """Return the rows of each type in equal periods, those of the target by split; dates as years."""
    middles = times["first"] + (np.arange(BINS) + 0.5) * ((times["last"] - times["first"]) / BINS)
    dates = are_dates(times)
    x = 1970 + middles / _YEAR if dates else middles
    lines = [Line(name, x, np.array(counts, float)) for name, counts in times["rows"].items()][:_MOST_LINES]
    return LineFigure(
        "times", f"Rows by time, in {BINS} equal periods", "year" if dates else "time", "rows", lines, COUNT
    )


def _schema_tables(health: Mapping[str, Any]) -> list[Markup]:
    """Return a table of the types of vertices, and one of the relations."""
    types = [["type", "features", "dtype", "vertices"]]
    for each in health[VERTEX_TYPE_LIST]:
        name = f"{each['name']} (target)" if each["target"] else each["name"]
        types.append([name, shown(each["feature_dim"]), each["feature_dtype"] or "-", f"{each['vertices']:,}"])
    relations = [["relation", "reverse of", "edges"]]
    relations += [[each["relation"], each["reverse_of"], f"{each['edges']:,}"] for each in health[RELATION_LIST]]
    return [table(types), table(relations, text_columns=2)]


def _schema(health: Mapping[str, Any]) -> list[Figure]:
    """Draw the schema, or, for many types, edges by type of source and of destination; nothing for one type."""
    types = [SchemaType(each["name"], each["vertices"], each["target"]) for each in health[VERTEX_TYPE_LIST]]
    if not 1 < len(types) <= _MOST_TYPES:
        return []
    relations = [_relation(each) for each in health[RELATION_LIST]]
    pairs = {frozenset((each.source, each.destination)) for each in relations}
    if len(types) <= _MOST_DRAWN and len(pairs) <= _MOST_PAIRS:
        both = any(each.reverse_of for each in relations)
        title = "Schema: types of vertices and relations, with their numbers"
        title += "; two heads: with the reverse relation" * both
        return [SchemaFigure("schema", title, types, relations)]
    names = [each.name for each in types]
    edges = np.zeros((len(types), len(types)))
    for each in relations:
        edges[names.index(each.source), names.index(each.destination)] += each.edges
    title = "Edges of all relations, by types"
    return [HeatFigure("schema", title, edges, names, names, "from", "to", COUNT)]


def _relation(found: Mapping[str, Any]) -> SchemaRelation:
    source, destination, whole = found["source"], found["destination"], found["relation"]
    name = whole.removeprefix(f"{source}:").removesuffix(f":{destination}")
    return SchemaRelation(name, source, destination, found["edges"], whole, found["reverse_of"])


def _degrees(health: Mapping[str, Any]) -> BarFigure:
    groups = health["in_degrees"]
    return BarFigure(
        "degrees",
        "Vertices by in-degree",
        list(groups),
        [("vertices", list(groups.values()))],
        COUNT,
        "in-degree",
        measure="vertices",
    )


def _classes(health: Mapping[str, Any], names: Sequence[str]) -> BarFigure:
    counts = health["class_counts"]
    order = sorted(sorted(range(len(counts)), key=lambda each: -counts[each])[:_MOST_CLASSES])
    labels = [f"{each} {names[each]}" if each < len(names) else str(each) for each in order]
    left = len(counts) - len(order)
    title = "Vertices by class" + f"; {left} more classes have fewer" * (left > 0)
    return BarFigure(
        "classes", title, labels, [("vertices", [counts[each] for each in order])], COUNT, "class", measure="vertices"
    )


def _parts(health: Mapping[str, Any]) -> BarFigure:
    """Return edges within and between parts; with very many parts, sums of neighbouring ones."""
    cut = health["cut"]
    each = -(-len(cut) // MOST_CELLS)
    firsts = range(0, len(cut), each)
    labels = [f"part {first}" if each == 1 else f"parts {first}-{first + each - 1}" for first in firsts]
    from_others = [sum(part["from_elsewhere"] for part in cut[first : first + each]) for first in firsts]
    whole = [sum(part["edges"] for part in cut[first : first + each]) for first in firsts]
    stacks = [
        ("from the same part", [a - b for a, b in zip(whole, from_others, strict=True)]),
        ("from other parts", from_others),
    ]
    return BarFigure(
        "cut", "In-edges of each part, by their source's part", labels, stacks, COUNT, "part", measure="edges"
    )
