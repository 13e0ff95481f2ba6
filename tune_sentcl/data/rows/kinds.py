"""The kinds of training rows: their columns, and the checks of texts and labels."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import Rows
from tune_sentcl.data.tables import (
    NEGATIVE,
    NEGATIVE_LIKE,
    Origin,
    blank_sentences,
    is_text,
    text_column,
    value_kind,
)
from tune_sentcl.errors import DataError, Fault

_LABELED = ("premise", "hypothesis", "label")
_TRIPLET = ("anchor", "positive")
_PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"), _TRIPLET)


@dataclass(frozen=True)
class Kind:
    """Rows of one kind.

    Attributes:
        columns: The columns of a corpus. Triplets may also have `negative_1` to `negative_n`, the
            same number in every row. `label` (int8) is 0 entailment, 1 neutral, 2 contradiction;
            `score` (float64) is a similarity, higher for closer sentences; the others are text.
        sources: Alternative sets of a file's columns from which rows are made; the first complete
            set is read.
        filled: The columns in which no sentence may be blank.
    """

    columns: tuple[str, ...]
    sources: tuple[tuple[str, ...], ...] = ()
    filled: tuple[str, ...] = ()


KINDS: dict[Rows, Kind] = {
    "labeled_pairs": Kind(_LABELED, (_LABELED,)),
    "sentences": Kind(("text",), (("text",), *_PAIRS)),
    "positive_pairs": Kind(("sentence1", "sentence2"), (_LABELED, *_PAIRS)),
    "graded_pairs": Kind(
        ("sentence1", "sentence2", "score"), tuple((*pair, "score") for pair in _PAIRS)
    ),
    "triplets": Kind(_TRIPLET, (_TRIPLET, _LABELED, *_PAIRS[:2]), _TRIPLET),
    "nothing": Kind(()),
}

NUMBERS = {"label": "<i8", "score": "<f8", "row": "<i8"}
"""The columns of numbers, with the types in which fingerprints hash them."""


def columns_read(kind: Rows, names: Iterable[str], where: Origin) -> tuple[str, ...]:
    """The columns of a table from which rows of a kind are made.

    Raises:
        DataError: No set of columns is complete; the error says how to name the columns.
    """
    there, sources = set(names), KINDS[kind].sources
    complete = next((columns for columns in sources if there.issuperset(columns)), None)
    strays = [n for n in there if NEGATIVE_LIKE.fullmatch(n) and not NEGATIVE.fullmatch(n)]
    if complete is not None and not (kind == "triplets" and complete == _TRIPLET and strays):
        return complete
    if complete is not None:
        rule = "columns of negatives must be named negative, negative_1, negative_2 and so on"
        raise DataError(Fault(str(where), key=strays[0], rule=rule, move="Rename the column."))
    needed = [f"{', '.join(n[:-1])} and {n[-1]}".removeprefix(" and ") for n in sources]
    rule = (
        f"the columns are {', '.join(where.columns) or 'none'}; {kind.replace('_', ' ')} need "
        f"{'; or '.join(needed)}"
    )
    roles = ", ".join(f'{name} = "YOUR COLUMN"' for name in min(sources, key=len))
    move = f"Name the columns: data.columns = {{ {roles} }}."
    raise DataError(Fault(str(where), rule=rule, move=move))


def roles_read(kind: Rows, there: Collection[str]) -> Sequence[str]:
    """The roles of a file from which rows of a kind are made, or by which rows are chosen."""
    # A column of another role can serve as the score of graded pairs, so pairs without a score
    # suffice here.
    sources = (*KINDS[kind].sources, *(_PAIRS if kind == "graded_pairs" else ()))
    complete = next((roles for roles in sources if {*roles} <= {*there}), ())
    negatives = kind == "triplets" and complete == _TRIPLET
    others = [role for role in there if negatives and role.startswith("negative")]
    judging = ("label", "score") if kind in ("positive_pairs", "triplets") else ()
    return (*complete, *others, *judging, "split")


LABELS = ("entailment", "neutral", "contradiction")
"""A label's number is its index."""

_NO_LABEL = -1
_SENTENCES = ("premise", "hypothesis")
_LABEL_RULE = (
    "a label must be 0, 1 or 2, or entailment, neutral or contradiction; -1 or - marks a row "
    "without a label"
)


def labelled_rows(table: pa.Table, where: Origin) -> tuple[pa.Table, Origin]:
    """The rows of `numbered_rows` that have a label, and their origin.

    Raises:
        DataError: As for `numbered_rows`; or a sentence is null or blank, or no row has a label.
    """
    rows = numbered_rows(table, where)
    kept = np.flatnonzero(pc.not_equal(rows.column("label"), _NO_LABEL))
    rows, where = rows.take(pa.array(kept)), where.take(kept)
    require_sentences(rows, _SENTENCES, where)
    if rows.num_rows == 0:
        raise DataError(Fault(str(where), rule="no row has a label", move="Choose another file."))
    return rows, where


def numbered_rows(table: pa.Table, where: Origin) -> pa.Table:
    """The columns `premise: string`, `hypothesis: string`, `label: int8` of labeled rows.

    Rows without a label (-1) and rows with blank sentences are included.

    Raises:
        DataError: A column is missing or of another type, a label is unknown, or there is no row.
    """
    columns_read("labeled_pairs", table.column_names, where)
    if table.num_rows == 0:
        raise DataError(
            Fault(str(where), rule="there are no rows", move="Choose another file or split.")
        )
    columns = {name: text_column(table, name, where) for name in _SENTENCES}
    return pa.table({**columns, "label": _numbered(table.column("label"), where)})


def require_sentences(table: pa.Table, names: Sequence[str], where: Origin) -> None:
    """Refuse null and blank sentences in some columns.

    Raises:
        DataError: One fault per column, naming its first blank rows.
    """
    faults = []
    for name in names:
        rows = np.flatnonzero(blank_sentences(table.column(name))).tolist()
        if rows:
            value = repr(table.column(name)[rows[0]].as_py()) if len(rows) == 1 else ""
            rule = "a sentence must not be blank"
            rule += f", but {len(rows):,} are" if len(rows) > 1 else ""
            move = "Correct the file, or drop such rows: --set data.blanks=drop."
            faults.append(Fault(where.at(rows), key=name, value=value, rule=rule, move=move))
    if faults:
        raise DataError(faults)


def _numbered(column: pa.ChunkedArray, where: Origin) -> pa.ChunkedArray:
    """Convert labels to int8; a missing label becomes -1."""
    kind = value_kind(column)
    if not pa.types.is_integer(kind) and not is_text(kind):
        rule = f"{_LABEL_RULE}; this column holds {kind}"
        move = "Write the labels as numbers or names."
        raise DataError(Fault(str(where), key="label", rule=rule, move=move))
    if {*pc.unique(column.cast(kind).cast(pa.string())).to_pylist()} - {"-1", "-"} == {"0", "1"}:
        rule = (
            "the column holds only 0 and 1, which may mean entailment and neutral, or no match "
            "and match"
        )
        move = (
            "Write entailment, neutral and contradiction; or, if 1 marks a match, name the "
            "text columns anchor and positive."
        )
        raise DataError(Fault(str(where), key="label", rule=rule, move=move))
    spellings = {"-1": _NO_LABEL, "-": _NO_LABEL}
    for number, name in enumerate(LABELS):
        spellings |= {str(number): number, name: number}
    places = pc.index_in(column.cast(kind).cast(pa.string()), value_set=pa.array([*spellings]))
    row = pc.index(pc.is_valid(places), False).as_py()
    if row >= 0:
        value, move = repr(column[row].as_py()), "Correct the row, or remove it."
        raise DataError(
            Fault(where.at([row]), key="label", value=value, rule=_LABEL_RULE, move=move)
        )
    return pc.take(pa.array(spellings.values(), pa.int8()), places)
