from pathlib import Path

import pytest
from disk_samples import write
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.data.text_files import read_lines
from tune_sentcl.errors import DataError


def test_splits_on_newline_only(tmp_path: Path) -> None:
    # NEL, form feed and file separator are line ends to `str.splitlines`, not here.
    path = write(tmp_path / "a", b"one \x85 row\ntwo\x0c\x1crows\xe9\n")
    assert read_lines(path, "latin-1") == ["one \x85 row", "two\x0c\x1crowsé"]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\n\nb\n\n", ["a", "", "b", ""]),
        ("a\r\n\r\nb\r\n", ["a", "", "b"]),
        ("a\rb\r\r\n", ["a\rb\r"]),
        ("\n", [""]),
        ("\ufeffa\n", ["a"]),
        ("a\u2028b\n", ["a\u2028b"]),
    ],
)
def test_rows(tmp_path: Path, content: str, rows: list[str]) -> None:
    assert read_lines(write(tmp_path / "a", content), "utf-8") == rows


@given(
    rows=st.lists(st.text(st.characters(codec="latin-1", exclude_characters="\r\n")), min_size=1)
)
def test_latin_1_rows_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    path = tmp_path_factory.mktemp("rows") / "a"
    path.write_bytes("".join(f"{row}\n" for row in rows).encode("latin-1"))
    assert read_lines(path, "latin-1") == rows


def test_broken_utf8_names_line_and_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "a", b"good\nalso good\nbad \xe9 row\n")
    with pytest.raises(DataError, match=r"a line 3: byte 0xe9 at offset 19: .*utf-8"):
        read_lines(path, "utf-8")


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_lines(tmp_path / "none", "utf-8")
    with pytest.raises(DataError, match="this is a folder"):
        read_lines(tmp_path, "utf-8")
    with pytest.raises(DataError, match="is empty"):
        read_lines(write(tmp_path / "a", ""), "utf-8")
    with pytest.raises(DataError, match=r"cannot be read \(.+\)"):
        read_lines(write(tmp_path / "file", "x") / "below", "utf-8")
