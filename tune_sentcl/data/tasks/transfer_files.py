"""Parsers of the transfer tasks' files in SentEval's layout.

Each gives rows as (sentences of the row, class). Words stand between spaces in these files; a row
keeps its words with one space between them. An empty line of a task of sentences is a row.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from tune_sentcl.data.text import Encoding, read_lines
from tune_sentcl.errors import DataError, Fault

Row = tuple[tuple[str, ...], int]

_COARSE = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_ENTAILMENT = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
_COPY_AGAIN = "Copy the file again from SentEval's data."


def read_one_class(path: Path, label: int) -> list[Row]:
    """Read a file whose sentences all have one class (MR, CR, SUBJ, MPQA): Latin-1."""
    return [((_words(line),), label) for line in read_lines(path, "latin-1")]


def read_sst2(path: Path) -> list[Row]:
    """Read a file of SST2: sentence, tab, 0 or 1."""

    def row(line: str) -> Row:
        text, label = line.rstrip().split("\t")
        return (_words(text),), _class(label, ("0", "1"))

    return _parse(path, "utf-8", row, "a sentence, a tab, and 0 or 1")


def read_sst5(path: Path) -> list[Row]:
    """Read a file of SST5: 0 to 4, space, sentence."""

    def row(line: str) -> Row:
        label, _, text = line.partition(" ")
        return (_words(text),), _class(label, ("0", "1", "2", "3", "4"))

    return _parse(path, "utf-8", row, "a class from 0 to 4, a space, and a sentence")


def read_trec(path: Path) -> list[Row]:
    """Read a file of TREC, Latin-1: COARSE:fine, space, question; the coarse class counts."""

    def row(line: str) -> Row:
        label, _, text = line.partition(" ")
        return (_words(text),), _class(label.partition(":")[0], _COARSE)

    return _parse(path, "latin-1", row, f"COARSE:fine and a question; COARSE is {_names(_COARSE)}")


def read_mrpc(path: Path) -> list[Row]:
    """Read a file of MRPC below its header: class, two numbers, two sentences, tabs between."""

    def row(line: str) -> Row:
        label, _, _, first, second = line.split("\t")
        return (_words(first), _words(second)), _class(label, ("0", "1"))

    return _parse(path, "utf-8", row, "0 or 1, two numbers and two sentences", header=1)


def read_sick_entailment(path: Path) -> list[Row]:
    """Read a file of SICK below its header, for its column `entailment_judgment`."""
    header = read_lines(path, "utf-8")[0].split("\t")
    wanted = ("sentence_A", "sentence_B", "entailment_judgment")
    missing = [name for name in wanted if name not in header]
    if missing:
        rule = f"the header must name the column {missing[0]}"
        raise DataError(Fault(f"{path} line 1", "", ", ".join(header), rule, _COPY_AGAIN))
    places = [header.index(name) for name in wanted]

    def row(line: str) -> Row:
        fields = line.split("\t")
        if len(fields) != len(header):
            raise ValueError(line)
        first, second, label = (fields[place] for place in places)
        return (_words(first), _words(second)), _class(label.strip(), _ENTAILMENT)

    return _parse(path, "utf-8", row, f"two sentences and {_names(_ENTAILMENT)}", header=1)


def _parse(
    path: Path, encoding: Encoding, row: Callable[[str], Row], rule: str, header: int = 0
) -> list[Row]:
    return list(_rows(path, read_lines(path, encoding), row, rule, header))


def _rows(
    path: Path, lines: list[str], row: Callable[[str], Row], rule: str, header: int
) -> Iterator[Row]:
    for number, line in enumerate(lines[header:], start=header + 1):
        try:
            yield row(line)
        except ValueError:
            where = f"{path} line {number}"
            shown = line if len(line) < 60 else f"{line[:57]}..."
            raise DataError(
                Fault(where, "", repr(shown), f"a row must be {rule}", _COPY_AGAIN)
            ) from None


def _class(text: str, classes: tuple[str, ...]) -> int:
    return classes.index(text)  # ValueError where there is no such class


def _words(text: str) -> str:
    return " ".join(text.split())


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)
