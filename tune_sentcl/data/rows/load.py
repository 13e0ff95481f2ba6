"""Load the training rows of a config."""

from pathlib import Path
from typing import assert_never

import pyarrow as pa

from tune_sentcl.config import DataConfig, Rows, columns_of, source_names
from tune_sentcl.data.rows.corpus import Corpus, join_corpora, make_corpus
from tune_sentcl.data.rows.files import UNCHANGED, ReadOptions
from tune_sentcl.data.rows.labeled_pairs import labelled_rows
from tune_sentcl.data.rows.sentences import (
    load_graded_pairs,
    load_positive_pairs,
    load_sentences,
)
from tune_sentcl.data.rows.sources import is_named, open_source, require_enough, shown_source
from tune_sentcl.data.rows.triplets import load_triplets
from tune_sentcl.errors import DataError, Fault


def load_nli(
    source: str, limit: int | None, root: Path | None, read_options: ReadOptions = UNCHANGED
) -> Corpus:
    """Load labeled pairs; rows without a label are dropped, and `limit` counts labeled rows.

    Raises:
        DataError: The source does not exist, or its rows are invalid.
    """
    table, where = open_source("labeled_pairs", source, root, limit, read_options)
    rows = require_enough(labelled_rows(table, limit, where), source, limit)
    return make_corpus("labeled_pairs", rows, shown_source(str(where)), where.dropped)


def load_rows(kind: Rows, config: DataConfig, root: Path | None) -> Corpus:
    """Load the rows that a method of this kind reads from the configured sources.

    Raises:
        DataError: A source does not exist, or does not hold rows of this kind.
    """
    names = source_names(config.source)
    if config.columns and kind != "nothing" and all(map(is_named, names)):
        rule = f"is only for own files and data sets, and {config.source} is not one"
        raise DataError(Fault("data.columns", "", config.columns, rule, "Drop it."))
    each = (config.model_copy(update={"source": name}) for name in names)
    return join_corpora([_load(kind, one, root) for one in each])


def _load(kind: Rows, config: DataConfig, root: Path | None) -> Corpus:
    read_options = ReadOptions(columns_of(config.columns), config.blanks)
    source, limit = config.source, config.limit
    match kind:
        case "labeled_pairs":
            return load_nli(source, limit, root, read_options)
        case "sentences":
            return load_sentences(source, limit, root, read_options)
        case "positive_pairs":
            return load_positive_pairs(source, limit, root, config.min_score, read_options)
        case "graded_pairs":
            return load_graded_pairs(source, limit, root, read_options)
        case "triplets":
            return load_triplets(source, limit, root, config.min_score, read_options)
        case "nothing":
            return Corpus("nothing", pa.table({}), "", "")
        case _ as unknown:
            assert_never(unknown)
