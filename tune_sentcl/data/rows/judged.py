"""Columns that judge pairs: they say which rows of a file are positives."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tune_sentcl.config import DataConfig, columns_of
from tune_sentcl.data.rows.kinds import LABELS
from tune_sentcl.data.tables import UNREAD, Origin, finite_scores, numbers
from tune_sentcl.errors import DataError, Fault

_MARKS = {
    *("label", "labels", "duplicate", "isduplicate", "match", "matches", "matching", "ismatch"),
    *("paraphrase", "isparaphrase", "relevant", "isrelevant", "isanswer", "correct"),
    *("iscorrect", "target", "y", "class", "gold", "goldlabel", "verdict", "judgment"),
    *("judgement", "quality", "weight", "posscore", "posscores", "poslabel", "poslabels"),
}
"""The names of columns that mark a match, without blanks, hyphens and underscores."""
_GRADES = {
    *("score", "scores", "similarity", "sim", "similarityscore", "relatedness", "rating"),
    *("relatednessscore", "relevance", "relevancescore", "relevancelabel", "rel", "grade"),
    *("goldscore", "cosine", "cosinesimilarity"),
}
"""The names of columns that grade a match."""
_YES = {
    *("yes", "true", "y", "t", "duplicate", "match", "matches", "positive", "relevant", "same"),
    *("paraphrase", "similar", "equivalent", "entailment", "correct", "related"),
    *("ja", "oui", "si", "sí", "sim", "да", "wahr", "vrai", "verdadero", "истина"),
}
_NO = {
    *("no", "false", "n", "f", "negative", "irrelevant", "different", "unrelated", "dissimilar"),
    *("mismatch", "neutral", "contradiction", "nomatch", "incorrect"),
    *("nein", "non", "não", "нет", "falsch", "faux", "falso", "ложь"),
    *(f"{no}{word}" for word in _YES for no in ("not", "non")),
}
_OF_NEGATIVES = re.compile(r"(hard)?neg(ative)?s?scores?")


def judges(name: str) -> bool:
    """Whether a column of this name judges pairs."""
    return _plain(name) in _MARKS | _GRADES


def judging(table: pa.Table, columns: str) -> Iterator[str]:
    """Yield the columns that judge a table's pairs, found by their names or values.

    A column judges the pairs if its name says so, or if it holds two values such as 0 and 1 or yes
    and no. If the user has named a score or a label, only that column judges.

    Args:
        table: Columns named by role; the name of a column without a role follows `UNREAD`.
        columns: `data.columns`.
    """
    named = columns_of(columns)
    chosen = [role for role in ("label", "score") if role in named and role in table.column_names]
    if chosen:
        yield from chosen
        return
    others = [role for role in table.column_names if role.startswith(UNREAD)]
    known = [role for role in others if judges(role)]
    known += [role for role in ("label", "score") if role in table.column_names]
    yield from known
    for role in others if not known else ():
        given = _distinct(table.column(role))
        # If there are as few rows as distinct values, 0 and 1 may be row numbers instead of marks.
        if len(table) > len(given) and _is_mark(given):
            yield role


def refuse_false_negatives(table: pa.Table, where: Origin) -> None:
    """Refuse lists of negatives if another column says that some of them match.

    Raises:
        DataError: That column holds 1, and otherwise only 0.
    """
    for role in table.column_names:
        if role.startswith(UNREAD) and _OF_NEGATIVES.fullmatch(_plain(role)):
            rows = (
                row if isinstance(row, list) else [row] for row in table.column(role).to_pylist()
            )
            each = numbers(one for row in rows for one in row if one is not None)
            if {1.0} <= {*each.tolist()} <= {0.0, 1.0}:
                name = role.removeprefix(UNREAD)
                rule = "this column says that some negatives match their anchors"
                move = f"Remove these negatives, or ignore the column: {_ignored(name)}."
                raise DataError(Fault(str(where), key=name, value="1", rule=rule, move=move))


def positives(
    table: pa.Table, role: str, min_score: float, where: Origin
) -> tuple[npt.NDArray[np.bool_], str]:
    """The rows that match according to a column.

    Of two numbers the larger marks a match, if the other is 0 or below; of two words, yes marks a
    match. If the column has more numbers and its name says that it grades, numbers from
    `min_score` on mark a match.

    Args:
        table: The rows.
        role: A column that `judging` yields.
        min_score: `data.min_score`.
        where: The file.

    Returns:
        Whether each row is a positive, and the condition in words.

    Raises:
        DataError: The values do not say which rows match, or no row matches.
    """
    name, values = role.removeprefix(UNREAD), table.column(role).to_pylist()
    if _plain(role).removeprefix("is") in _NO:
        # In a column such as `is_negative`, the value 1 says that texts do not match.
        raise DataError(_unclear(name, _distinct(table.column(role)), where))
    given = _distinct(table.column(role))
    if given and given <= _YES | _NO:
        found = np.array([_word(value) in _YES for value in values])
        condition = f"{name} = {' or '.join(sorted(given & _YES))}"
    else:
        found, condition = _by_number(table, role, min_score, where)
    if not found.any():
        rule = "this column marks no pair as a match"
        raise DataError(
            Fault(str(where), key=name, rule=rule, move="Choose a file with positives.")
        )
    return found, condition


def _by_number(
    table: pa.Table, role: str, min_score: float, where: Origin
) -> tuple[npt.NDArray[np.bool_], str]:
    name, values = role.removeprefix(UNREAD), table.column(role).to_pylist()
    given = _distinct(table.column(role))
    if role == "score":
        scores = finite_scores(table, where)
    else:
        scores = numbers("" if value is None else value for value in values)
    distinct = np.unique(scores[np.isfinite(scores)])
    if {0.0, 1.0} <= {*distinct} and _plain(role) in _MARKS:
        distinct = distinct[distinct != -1]  # here -1 marks a row that was not judged
    is_mark = len(distinct) == 2 and distinct[0] <= 0 < distinct[1]
    if np.isnan(numbers(given)).any() or not len(distinct):
        raise DataError(_unclear(name, given, where))
    least = float(distinct[-1])
    if _plain(role) in _GRADES and (least >= min_score or not is_mark):
        _require_close(name, distinct, min_score, where)
        found, condition = scores >= min_score, f"{name} >= {min_score:g}"
    elif is_mark or (len(distinct) == 1 and least > 0):
        found, condition = scores == least, f"{name} = {least:g}"
    else:
        raise DataError(_unclear(name, given, where))
    return found, condition


def as_scores(table: pa.Table, role: str, where: Origin) -> pa.Array:
    """Read a column as scores: numbers unchanged; of two words, yes is 1 and no is 0.

    Raises:
        DataError: The column holds other words, or numbers that may be NLI's classes, in which 0
            means entailment.
    """
    column, given = table.column(role), _distinct(table.column(role))
    if np.isfinite(each := numbers(given)).all():
        classes = {*each.tolist()} - {-1.0}
        beside_premise = "premise" in table.column_names and classes == {0.0, 1.0}
        if _plain(role) in _MARKS and (classes == {0.0, 1.0, 2.0} or beside_premise):
            raise DataError(_unclear(role.removeprefix(UNREAD), given, where))
        return column
    found, _ = positives(table, role, 1.0, where)
    return pa.array(found.astype(np.float64))


_USUAL, _LARGEST = DataConfig().min_score, 5.0
"""The default of `data.min_score`, and the largest score of the scale on which it makes sense."""


def _require_close(
    name: str, scores: npt.NDArray[np.float64], min_score: float, where: Origin
) -> None:
    if scores[-1] >= min_score and (scores[-1] <= _LARGEST or min_score != _USUAL):
        return
    if scores[-1] >= min_score:
        move = "Set data.min_score to the lowest score of pairs that mean the same."
        usual = f"data.min_score = {_USUAL:g} is for scores up to 5"
        rule = f"the scores reach {scores[-1]:g}, but {usual}"
        raise DataError(Fault(str(where), key=name, rule=rule, move=move))
    rule = f"no pair has a score of data.min_score = {min_score:g} or above"
    rule += f"; the scores are from {scores[0]:g} to {scores[-1]:g}"
    move = "Set data.min_score to the lowest score of pairs that mean the same"
    move += "." if name == "score" else f", or ignore the column: {_ignored(name)}."
    raise DataError(Fault(str(where), key=name, rule=rule, move=move))


def _unclear(name: str, given: Sequence[str] | frozenset[str], where: Origin) -> Fault:
    shown = sorted(given)[:4]
    values = f"{', '.join(shown)}{' and others' if len(given) > len(shown) else ''}"
    rule = "this column judges the pairs, and its values do not say which pairs match"
    move = (
        f"Write 1 for a match and 0 for no match; or read the column as a score (data.columns = "
        f'{{ score = "{name}" }}, with data.min_score); or ignore it: {_ignored(name)}.'
    )
    return Fault(str(where), key=name, value=values, rule=rule, move=move)


def _ignored(name: str) -> str:
    return f'data.columns = {{ ignored = "{name}" }}'


def _plain(role: str) -> str:
    return re.sub(r"[\W_]", "", role.removeprefix(UNREAD).casefold())


def _word(value: object) -> str:
    return re.sub(r"[\W_]", "", str(value).casefold())


def _distinct(column: pa.ChunkedArray) -> frozenset[str]:
    """A column's distinct values as words, without nulls; numbers keep their spelling."""
    try:
        values = column.unique().to_pylist()
    except (pa.ArrowException, NotImplementedError):
        # Arrow has no `unique` for lists, so a column of lists holds no marks.
        return frozenset()
    plain = (value for value in values if value is not None and str(value).strip())
    texts = (str(value).strip() for value in plain)
    words = (text if text[-1:].isdigit() else _word(text) for text in texts)
    # `_word` makes "" of "-", which marks a row that was not judged.
    return frozenset(word for word in words if word)


def names_no_nli(column: pa.ChunkedArray) -> bool:
    """Whether labels are words for yes and no rather than NLI's classes."""
    given = _distinct(column)
    return bool(given) and given <= _YES | _NO and not given <= {*LABELS}


def _is_mark(given: frozenset[str]) -> bool:
    """Whether a column's values are two that can only mean match and no match."""
    if len(given) == 2 and np.isfinite(values := numbers(given)).all():
        return {*values.tolist()} in ({0.0, 1.0}, {-1.0, 1.0})
    return len(given) == 2 and bool(given & _YES) and bool(given & _NO)
