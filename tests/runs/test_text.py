"""Figures as text."""

from leapmpi.runs.text import wrapped


def test_lines_are_broken_at_blanks_and_keep_their_columns():
    line = "  method          grem, seed 0; auto chose it: a graph this small is cut by both"
    assert wrapped(line, 18, 60).splitlines() == [
        "  method          grem, seed 0; auto chose it: a graph this",
        "                  small is cut by both",
    ]
    assert wrapped("  note: /a/path/without-any-blank", 4, 12) == "  note:\n    /a/path/without-any-blank"
