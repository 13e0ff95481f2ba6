"""A study on disk: one versioned Arrow schema a table, written whole or not at all."""

from tune_sentcl.store.rows import CurvePoint, Score, TrialRow
from tune_sentcl.store.study import Study
from tune_sentcl.store.writer import StudyWriter

__all__ = ["CurvePoint", "Score", "Study", "StudyWriter", "TrialRow"]
