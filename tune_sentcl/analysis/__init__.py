"""Data frames of a study, summaries of its trials, and the papers' numbers."""

from tune_sentcl.analysis.frames import StudyFrames, configurations, read_study
from tune_sentcl.analysis.papers.paper_results import paper_errata, paper_results

__all__ = [
    "StudyFrames",
    "configurations",
    "paper_errata",
    "paper_results",
    "read_study",
]
