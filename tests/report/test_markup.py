"""What comes from files stays text."""

from leapmpi.report.markup import details, element, facts, table


def test_text_is_escaped_and_markup_is_not():
    found = element("p", "<script>", element("b", "a & b"), None, class_="x", data_name='"q"')
    assert found == '<p class="x" data-name="&quot;q&quot;">&lt;script&gt;<b>a &amp; b</b></p>'


def test_tables_escape_every_cell():
    assert "<img" not in table([["<img>"], ["<img>"]]) + facts([("<img>", "<img>")]) + details("<img>", "<img>")
