"""Labeled sentence pairs (NLI) by name, file, folder or hub name."""

from pathlib import Path

from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.rows.files import AS_IT_IS, Reading
from tune_sentcl.data.rows.labeled_pairs import LABELS, labelled_rows
from tune_sentcl.data.rows.sources import open_source, require_enough, shown_source

__all__ = ["LABELS", "load_nli"]


def load_nli(
    source: str, limit: int | None, root: Path | None, reading: Reading = AS_IT_IS
) -> Corpus:
    """Load labeled pairs; rows without a label are dropped.

    Args:
        source: As for `open_source`; its columns are `premise`, `hypothesis` and `label`.
        limit: Keep the first so many labeled rows; None keeps all.
        root: The data root.
        reading: As for `open_source`.

    Raises:
        DataError: There is no such source, or its rows break a rule.
    """
    table, where = open_source("labeled_pairs", source, root, limit, reading)
    rows = require_enough(labelled_rows(table, limit, where), source, limit)
    return make_corpus("labeled_pairs", rows, shown_source(str(where)), where.dropped)
