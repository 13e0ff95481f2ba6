"""Load the training rows of a config.

Sentences are made from pairs; pairs of the same meaning from pairs labeled entailment or with a
high score; triplets from both. A row of sentences or pairs may have an empty sentence, as in
SimCSE's training.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import DataConfig, Rows, source_names
from tune_sentcl.data.rows.corpus import Corpus, join_corpora, make_corpus
from tune_sentcl.data.rows.kinds import (
    KINDS,
    columns_read,
    labelled_rows,
    require_sentences,
)
from tune_sentcl.data.rows.sources import is_named, open_source, require_enough, shown_source
from tune_sentcl.data.tables import NEGATIVE, Origin, blank_sentences, finite_scores, text_column
from tune_sentcl.errors import DataError, Fault


def load_rows(kind: Rows, config: DataConfig, root: Path | None, split: str = "train") -> Corpus:
    """Load the rows that a method of this kind reads from the configured sources.

    Pairs of the same meaning are labeled pairs with entailment (CLSR, section 4.1). Of other
    pairs, those count that match by a column of the file, or all if no column judges.
    `nli_triplets` makes triplets of labeled pairs. Sentences are the distinct sentences of pairs,
    first those of the first column.

    Args:
        kind: The kind of the rows.
        config: The sources and the options to read them; `limit` counts the rows of each source.
        root: The data root.
        split: The split to load from files with a column `split`.

    Raises:
        DataError: A source does not exist, or does not hold valid rows of this kind.
    """
    names = source_names(config.source)
    if kind == "nothing":
        return Corpus("nothing", pa.table({}), "", "")
    if config.columns and all(map(is_named, names)):
        rule = (
            f"can only name columns of custom files and data sets, but {config.source} is not "
            "custom"
        )
        raise DataError(
            Fault("data.columns", value=config.columns, rule=rule, move="Remove data.columns.")
        )
    each = (config.model_copy(update={"source": name}) for name in names)
    return join_corpora([_load(kind, single, root, split) for single in each])


def _load(kind: Rows, config: DataConfig, root: Path | None, split: str) -> Corpus:
    table, where = open_source(kind, config, root, split)
    is_nli = {*KINDS["labeled_pairs"].columns} <= {*table.column_names}
    if kind == "labeled_pairs" or (is_nli and kind in ("positive_pairs", "triplets")):
        rows, where = _from_labels(kind, table, where)
    elif kind == "sentences":
        rows = _sentences(table, where)
    else:
        rows = _texts(kind, table, where)
        if kind == "graded_pairs":
            rows = rows.append_column("score", pa.array(finite_scores(table, where)))
    _require_rows(rows, where, "there are no rows")
    require_sentences(rows, KINDS[kind].filled, where)
    head = require_enough(_head(rows, config.limit), config.source, config.limit)
    corpus = make_corpus(kind, head, shown_source(str(where)), _passed(where, head, rows))
    return replace(corpus, notes=where.notes, splits=where.splits)


def _from_labels(kind: Rows, table: pa.Table, where: Origin) -> tuple[pa.Table, Origin]:
    labeled, where = labelled_rows(table, where)
    if kind == "labeled_pairs":
        return labeled, where
    if kind == "triplets":
        rows = nli_triplets(labeled)
        rule = "no premise has both a row labeled entailment and a row labeled contradiction"
    else:
        rows = labeled.filter(pc.equal(labeled.column("label"), 0))
        rows = rows.select(["premise", "hypothesis"]).rename_columns(["sentence1", "sentence2"])
        rule = "no row is labeled entailment"
    _require_rows(rows, where, rule)
    return rows, where


def nli_triplets(labeled: pa.Table) -> pa.Table:
    """Make a triplet of each premise with an entailed and a contradicted hypothesis.

    This follows SimCSE's supervised set (Gao et al. 2021, section 4), whose script is not
    published. If a premise has several hypotheses of a label, the first one is used. The premises
    are in the order in which they first occur.
    """
    # The codes of a dictionary encoding follow the order in which the texts first occur.
    premises = pc.dictionary_encode(labeled.column("premise").combine_chunks())
    numbers = np.asarray(premises.indices.to_numpy(), dtype=np.int64)
    labels = np.asarray(labeled.column("label").to_numpy())
    first = []
    for label in (0, 2):
        rows = np.flatnonzero(labels == label)
        distinct, places = np.unique(numbers[rows], return_index=True)
        first.append(dict(zip(distinct.tolist(), rows[places].tolist(), strict=True)))
    true, false = first
    both = [premise for premise in true if premise in false]
    hypotheses = labeled.column("hypothesis").combine_chunks()
    columns = {
        "anchor": premises.dictionary.take(pa.array(both, pa.int64())),
        "positive": hypotheses.take(pa.array([true[p] for p in both], pa.int64())),
        "negative_1": hypotheses.take(pa.array([false[p] for p in both], pa.int64())),
    }
    return pa.table(columns)


def _sentences(table: pa.Table, where: Origin) -> pa.Table:
    names = columns_read("sentences", table.column_names, where)
    texts = [pc.fill_null(text_column(table, name, where), "") for name in names]
    if len(texts) == 1:
        return pa.table({"text": texts[0]})
    chunks = [chunk for column in texts for chunk in column.chunks]
    return pa.table({"text": pc.unique(pa.chunked_array(chunks, pa.string()))})


def _texts(kind: Rows, table: pa.Table, where: Origin) -> pa.Table:
    """Pairs or triplets unchanged from a table; the sentences of triplets may be null."""
    sides = columns_read(kind, table.column_names, where)[:2]
    columns = {}
    for role, name in zip(KINDS[kind].columns, sides, strict=False):
        column = text_column(table, name, where)
        columns[role] = column if KINDS[kind].filled else pc.fill_null(column, "")
    for name in table.column_names:
        if kind == "triplets" and sides[0] == "anchor" and NEGATIVE.fullmatch(name):
            column = text_column(table, name, where)
            columns[name] = pc.if_else(blank_sentences(column), "", column)
        elif name == "row":
            columns[name] = table.column(name)
    return pa.table(columns)


def _head(rows: pa.Table, limit: int | None) -> pa.Table:
    """The first `limit` rows; alternatives, which share a number in `row`, count as one row."""
    if limit is None or "row" not in rows.column_names:
        return rows.slice(0, limit)
    numbers = np.unique(rows.column("row").to_numpy())[:limit]
    return rows.filter(pc.less_equal(rows.column("row"), pa.scalar(numbers[-1])))


def _passed(where: Origin, head: pa.Table, rows: pa.Table) -> int:
    """How many rows were dropped, for a blank sentence, before the last row that is kept."""
    numbers = where.numbers
    if numbers is None or len(head) == len(rows) or len(numbers) != len(rows):
        return len(where.dropped)
    return sum(number < numbers[len(head) - 1] for number in where.dropped)


def _require_rows(rows: pa.Table, where: Origin, rule: str) -> None:
    if rows.num_rows == 0:
        raise DataError(Fault(str(where), rule=rule, move="Choose another source."))
