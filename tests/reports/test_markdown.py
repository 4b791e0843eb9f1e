"""Sections of a Markdown file that commands generate."""

import pytest

from sottovoce.errors import DataError
from sottovoce.reports.markdown import sections_of, write_section


def test_a_section_is_replaced_and_the_rest_is_kept(tmp_path):
    path = tmp_path / "results.md"
    path.write_text("# Results\n\nKept.\n")
    write_section(path, "one", "first")
    write_section(path, "two", "second")
    write_section(path, "one", "third")
    assert path.read_text() == (
        "# Results\n\nKept.\n\n<!-- begin one -->\nthird\n<!-- end one -->\n\n"
        "<!-- begin two -->\nsecond\n<!-- end two -->\n"
    )
    for damaged in ("<!-- begin one -->\n", "<!-- end one -->\n<!-- begin one -->\n"):
        path.write_text(damaged)
        with pytest.raises(DataError, match="should have one"):
            write_section(path, "one", "x")
        assert path.read_text() == damaged


def test_a_note_that_sections_share_stands_in_the_first_one(tmp_path):
    path = tmp_path / "results.md"
    for _ in range(2):  # written again, the file is the same
        write_section(path, "one", "first", ["Shared.", "Own."])
        write_section(path, "two", "second", ["Shared.", "Other."])
        assert path.read_text() == (
            "<!-- begin one -->\nfirst\n\nShared.\n\nOwn.\n<!-- end one -->\n\n"
            "<!-- begin two -->\nsecond\n\nNotes under earlier tables that apply here too: “Shared.”.\n\n"
            "Other.\n<!-- end two -->\n"
        )
    assert sections_of(path) == ["one", "two"]
