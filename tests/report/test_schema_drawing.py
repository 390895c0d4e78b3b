"""The picture of a schema: nothing overlaps or is cut, and each relation is named with its count."""

import itertools
import re
from dataclasses import replace

import pytest

from leapmpi.report.charts import chart
from leapmpi.report.drawing import NARROW, WIDE
from leapmpi.report.figures import SchemaFigure, SchemaRelation, SchemaType
from leapmpi.report.markup import element
from leapmpi.report.page import Section, page
from leapmpi.report.paper_figures import write_figures
from leapmpi.report.schema_layout import schema_layout
from tests.support.browser import cut_texts, looked_at, overlapping_texts


def relation(source, name, destination, edges, reverse_of=""):
    return SchemaRelation(name, source, destination, edges, f"{source}:{name}:{destination}", reverse_of)


def figure(types, *relations, name="schema"):
    listed = [SchemaType(each, 10**number, number == 0) for number, each in enumerate(types)]
    return SchemaFigure(name, "Schema", listed, relations)


PAPERS = figure(
    ("paper", "author", "field"),
    relation("paper", "cites", "paper", 20),
    relation("paper", "reviews", "paper", 12),
    relation("author", "writes", "paper", 2_134_567),
    relation("paper", "rev_writes", "author", 2_134_567, "author:writes:paper"),
    relation("author", "chairs", "field", 4),
    relation("field", "has_as_chair_of_the_whole_programme_committee", "author", 4),
    name="papers",
)
NAMES = [f"a-rather-long-name-{number}" for number in range(12)]
LARGE = figure(
    NAMES,
    *(
        relation(a, f"relation_{number}", b, 12_345 * number)
        for number, (a, b) in enumerate(itertools.product(NAMES, NAMES))
        if number % 6 == 0
    ),
    name="large",
)
USERS = figure(("user", "item"), *(relation("user", f"does_{n}", "item", n) for n in range(9)), name="users")


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("schema", [PAPERS, LARGE, USERS], ids=lambda each: each.name)
def test_boxes_and_labels_are_apart_and_inside(schema, width):
    places = schema_layout(schema, width)
    boxes = [*places.types, *places.labels]
    assert not any(a.meets(b) for a, b in itertools.combinations(boxes, 2))
    assert all(each.left >= 0 and each.right <= width and each.top >= 0 for each in boxes)
    assert all(each.bottom <= places.height for each in boxes)
    # An arrow ends at its boxes, never within one.
    within = [
        replace(box, left=box.left + 1, right=box.right - 1, top=box.top + 1, bottom=box.bottom - 1)
        for box in places.types
    ]
    assert not any(each.holds(points[[0, -1]]).any() for points in places.arrows for each in within)


def test_each_relation_is_named_with_its_count():
    for width in (WIDE, NARROW):
        text = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", chart(PAPERS, width)))
        for each in ("paper", "target, 1", "cites 20", "reviews 12", "writes 2.13M", "chairs 4", "…"):
            assert each in text, each


def test_a_reverse_relation_is_a_second_head_of_the_same_arrow():
    assert len(schema_layout(PAPERS, WIDE).arrows) == 4
    assert len(schema_layout(PAPERS, WIDE).heads) == 5


def test_a_schema_is_a_figure_for_papers(tmp_path):
    pytest.importorskip("matplotlib", reason="figures for papers need the extra 'figures'")
    (path,) = write_figures({"schema": PAPERS}, ["schema"], "svg", tmp_path / "page.html")
    assert {"paper", "target, 1", "writes 2.13M"} <= set(re.findall(r">([^<>]+)</text>", path.read_text()))


def test_many_relations_of_two_types_are_summed():
    (label,) = schema_layout(USERS, NARROW).labels
    assert list(label.lines) == ["9 relations", "36 edges"]
    assert USERS.table()[1:3] == [["user", "does_0", "item", "0"], ["user", "does_1", "item", "1"]]


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (400, False)])
def test_a_browser_shows_its_texts_whole_and_apart(tmp_path, width, dark):
    text = page("Schemas", element("p", "all"), [Section(each.name, [], [each]) for each in (PAPERS, LARGE, USERS)])
    found = looked_at(text, tmp_path, width, dark)
    assert found["scrolled"] <= width
    assert cut_texts(found, width) == []
    assert overlapping_texts(found) == []
    assert min(each["size"] for each in found["texts"]) > 9
