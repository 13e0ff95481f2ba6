"""Evaluation of any function that maps sentences to a float32 array [n, d]."""

from tune_sentcl.evaluate.suites import Evaluation, Measures, evaluate, score_sets

__all__ = ["Evaluation", "Measures", "evaluate", "score_sets"]
