"""A study's tables as polars LazyFrames."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.store.study import StudyTables

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class StudyScans:
    """See `StudyFrames`; nothing is computed before `collect`.

    Attributes:
        trials: One row a trial.
        scores: One row a number.
        curves: One row a point.
    """

    trials: "pl.LazyFrame"
    scores: "pl.LazyFrame"
    curves: "pl.LazyFrame"


def scan(tables: StudyTables) -> StudyScans:
    """See `StudyFrames.scan`.

    Raises:
        ResourceError: polars is not installed.
    """
    try:
        import polars as pl
    except ImportError:
        rule, move = "is not installed", 'Run: pip install "tune-sentcl[polars]".'
        raise ResourceError(Fault("polars", "", "", rule, move)) from None
    found = (tables.trials(), tables.scores(), tables.curves())
    trials, scores, curves = (pl.DataFrame(table).lazy() for table in found)
    return StudyScans(trials, scores, curves)
