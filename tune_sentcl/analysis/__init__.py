"""From a study's tables to numbers that people compare."""

from tune_sentcl.analysis.frames import StudyFrames, read_study
from tune_sentcl.analysis.papers.paper_results import paper_errata, paper_results
from tune_sentcl.analysis.summary import configurations, summary

__all__ = [
    "StudyFrames",
    "configurations",
    "paper_errata",
    "paper_results",
    "read_study",
    "summary",
]
