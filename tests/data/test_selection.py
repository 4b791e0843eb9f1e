"""STORE@SPEAKERS, where folders and lists have an @ in their names, too."""

from pathlib import Path

import pytest

from sottovoce.data.selection import Selection
from sottovoce.errors import DataError


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("me@home/mine@v2").mkdir(parents=True)
    for name in ("users.txt", "users@seed.txt"):
        Path(name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "store", "speakers"),
    [
        ("me@home/mine@v2", "me@home/mine@v2", None),
        ("me@home/mine@v2@users.txt", "me@home/mine@v2", "users.txt"),
        ("me@home/mine@v2@users@seed.txt", "me@home/mine@v2", "users@seed.txt"),
        # What is missing is named by the error that follows.
        ("me@home/mine@v2@lost@1.txt", "me@home/mine@v2", "lost@1.txt"),
        ("me@home/lost@users.txt", "me@home/lost", "users.txt"),
        ("lost", "lost", None),
    ],
)
def test_what_exists_decides_which_at_separates(there: Path, text: str, store: str, speakers: str | None) -> None:
    expected = Selection(store=Path(store), speakers=None if speakers is None else Path(speakers))
    assert Selection.parse(text) == expected


def test_a_name_with_two_meanings_is_refused(there: Path) -> None:
    Path("mine").mkdir()
    Path("mine@users.txt").mkdir()
    with pytest.raises(DataError, match=r"can mean the stores mine@users.txt and mine. Rename"):
        Selection.parse("mine@users.txt")
