"""Quotes in files of cells: no row is swallowed, and what stays open is refused with its line."""

import csv
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
from disk_samples import write

from tune_sentcl.data.columns import read_table
from tune_sentcl.errors import DataError

HEADER = ["sentence1", "sentence2"]
ODD = ['He said "no"', "a\ttab, a comma", '"Yes." "No."', '""', '"', "", "plain", 'end "']


def rows_of(path: Path) -> list[list[str]]:
    return [list(row.values()) for row in read_table(path)[0].to_pylist()]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_what_pandas_quotes_is_read_as_it_was(
    tmp_path: Path, suffix: str, quoting: Literal[0, 1]
) -> None:
    rows = [[one, other] for one in ODD for other in reversed(ODD)]
    if suffix == "csv":
        rows.append(["two\nlines", '"\n,"'])
    path = tmp_path / f"a.{suffix}"
    mark = "\t" if suffix == "tsv" else ","
    pd.DataFrame(rows, columns=HEADER).to_csv(path, sep=mark, index=False, quoting=quoting)
    assert rows_of(path) == rows


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
