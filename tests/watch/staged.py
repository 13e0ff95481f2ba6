"""A search whose sampled configurations pause, for those that follow a search."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from search_samples import LAMBDA, lambda_space, run_planted
from stand_in import Fate, StandIn

from tune_sentcl.config import TrialConfig
from tune_sentcl.tuning import question
from tune_sentcl.tuning.search import SearchOutcome


def fate(config: TrialConfig) -> Fate:
    return "fail" if config.dotted()["method.lambda"] == 0.75 else "finish"


def run_staged(
    folder: Path,
    launcher: StandIn,
    patch: pytest.MonkeyPatch,
    *,
    ranges: str = LAMBDA,
    **more: Any,
) -> SearchOutcome:
    """A grid of two; with ranges also four sampled configurations, one of them trained whole."""
    patch.setattr(question, "first_shares", lambda *_: (0.25, 1.0))
    space = lambda_space(folder / "space", 0.25, 0.75, ranges=ranges)
    usual = {"samples": 4 if ranges else 0, "sampler": "random", "scheduler": "halving"}
    space = replace(space, name="scl/lambda")
    return run_planted(space, launcher.study, launcher, **{**usual, **more})[0]
