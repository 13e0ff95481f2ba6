"""Evaluation of any function `encode(sentences) -> float32 [n, d]`."""

from tune_sentcl.evaluate.suites import Evaluation, Measures, evaluate, score_sets

__all__ = ["Evaluation", "Measures", "evaluate", "score_sets"]
