"""The training rows of a config."""

from pathlib import Path
from typing import assert_never

import pyarrow as pa

from tune_sentcl.config import DataConfig, Rows, source_names
from tune_sentcl.data.rows.corpus import Corpus, join_corpora
from tune_sentcl.data.rows.nli import load_nli
from tune_sentcl.data.rows.sentences import (
    load_graded_pairs,
    load_positive_pairs,
    load_sentences,
)
from tune_sentcl.data.rows.triplets import load_triplets


def load_rows(kind: Rows, config: DataConfig, root: Path | None) -> Corpus:
    """Load what a method of this kind reads from the sources that the config names.

    Raises:
        DataError: There is no such source, or it does not hold rows of this kind.
    """
    names = source_names(config.source)
    each = (config.model_copy(update={"source": name}) for name in names)
    return join_corpora([_load(kind, one, root) for one in each])


def _load(kind: Rows, config: DataConfig, root: Path | None) -> Corpus:
    match kind:
        case "labeled_pairs":
            return load_nli(config.source, config.limit, root)
        case "sentences":
            return load_sentences(config.source, config.limit, root)
        case "positive_pairs":
            return load_positive_pairs(config.source, config.limit, root, config.min_score)
        case "graded_pairs":
            return load_graded_pairs(config.source, config.limit, root)
        case "triplets":
            return load_triplets(config.source, config.limit, root, config.min_score)
        case "nothing":
            return Corpus("nothing", pa.table({}), "", "")
        case _ as unknown:
            assert_never(unknown)
