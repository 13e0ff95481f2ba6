"""Lines end at newlines alone, and no quote swallows a row."""

from pathlib import Path

import pytest
from disk_samples import write
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.data.tables import read_table
from tune_sentcl.data.text_files import read_lines
from tune_sentcl.errors import DataError

HEADER = ["sentence1", "sentence2"]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.tsv", 'He said "no"\tx\n"Quote at start\ty\nfoo\tz\nbaz" ok\tq\n', 3),
        ("a.tsv", 'a\tb\n"two\nlines"\tc\n', 3),
        ("a.tsv", '"So" he said\tb\n', 2),
        ("a.tsv", 'a\t"b\n', 2),
        ("a.csv", 'x,y\n"Quote at start,a\nfoo,b\nbaz" ok,c\n', 3),
        ("a.csv", 'x,"y\na,b\nc,d\n', 2),
        ("a.csv", '"fine\nlines",y\r\n"a"b,c\r\n', 4),
    ],
)
def test_an_open_quote_is_refused_with_its_line(
    tmp_path: Path, name: str, content: str, line: int
) -> None:
    mark = "\t" if name == "a.tsv" else ","
    path = write(tmp_path / name, mark.join(HEADER) + "\n" + content)
    with pytest.raises(DataError, match=rf'{name} line {line}: .* must end with "'):
        read_table(path)


# Lines


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
    path = tmp_path_factory.getbasetemp() / "latin-1"
    path.write_bytes("".join(f"{row}\n" for row in rows).encode("latin-1"))
    assert read_lines(path, "latin-1") == rows


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none", "does not exist"),
        (tmp_path, "this is a folder"),
        (write(tmp_path / "a", ""), "is empty"),
        (write(tmp_path / "file", "x") / "below", r"cannot be read \(.+\)"),
        (
            write(tmp_path / "b", b"good\nalso good\nbad \xe9 row\n"),
            r"b line 3: byte 0xe9 at offset 19: .*utf-8",
        ),
    ):
        with pytest.raises(DataError, match=message):
            read_lines(path, "utf-8")
