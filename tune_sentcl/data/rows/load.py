"""The training rows of a config."""

from pathlib import Path
from typing import assert_never

import pyarrow as pa

from tune_sentcl.config import DataConfig, Rows
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.nli import load_nli
from tune_sentcl.data.rows.sentences import (
    load_graded_pairs,
    load_positive_pairs,
    load_sentences,
)
from tune_sentcl.data.rows.triplets import load_triplets


def load_rows(kind: Rows, config: DataConfig, root: Path | None) -> Corpus:
    """Load what a method of this kind reads from the source that the config names.

    Raises:
        DataError: There is no such source, or it does not hold rows of this kind.
    """
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
