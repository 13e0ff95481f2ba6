"""A trial that is trained again: what it left stands whole until the new run is known whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trial_samples import LOADER, Kept, drained, finish

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.score import Score, merged
from tune_sentcl.space import load_space
from tune_sentcl.trial import run

MARK = "of the first run"
REST = Score("transfer", "MR", "test", "accuracy", "logreg-10fold", "toy", 70.0, 9)
"""What a measurement has added since, and the new run does not ask for."""


def smoke(**changes: Any) -> TrialConfig:
    space = load_space("smoke", {"data.limit": 48, "evaluation.every": 1, **changes})
    return space.configurations[0]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A trial that has finished, whose files are all told apart from those of another run."""
    finish(smoke(), tmp_path)
    kept = Kept(tmp_path, smoke())
    (kept.weights / MARK).write_text("")
    kept.files.write_curves(kept.trial_id, kept.curves[:3])
    older = [replace(score, value=1.0) for score in kept.scores]
    kept.files.write_scores(kept.trial_id, [*older, REST])
    return kept


def test_nothing_is_touched_before_the_end_and_scores_are_added(kept: Kept) -> None:
    before, old = kept.contents(), kept.scores
    output = kept.output(again=True)
    points = []
    for progress in run(kept.config, LOADER.load(kept.config), output=output):
        points.append(progress)
        if not progress.final:
            assert kept.contents() == before
    assert [point.final for point in points] == [False, False, False, True]
    # Numbers stay to the bit; what they lacked comes to them.
    assert kept.scores == merged(merged(old, points[-1].scores), old)
    assert REST in kept.scores and len(kept.scores) == len(points[-1].scores) + 1
    assert max(point.step for point in kept.curves) == 4
    assert kept.weights.exists() and not (kept.weights / MARK).exists()


def test_a_run_that_is_stopped_has_touched_nothing(kept: Kept) -> None:
    before = kept.contents()
    trial = run(kept.config, LOADER.load(kept.config), output=kept.output(again=True))
    assert not next(trial).final
    trial.close()
    assert kept.contents() == before


def test_a_run_that_fails_at_its_very_end_has_touched_nothing(kept: Kept) -> None:
    before = kept.contents()
    inputs = LOADER.load(kept.config)
    level = [replace(part, gold=(3.0,) * len(part)) for part in inputs.sets.sts[0].subsets]
    first = replace(inputs.sets.sts[0], subsets=tuple(level))
    sets = replace(inputs.sets, sts=(first, *inputs.sets.sts[1:]))
    output = kept.output(again=True)
    with pytest.raises(NonFiniteError, match="nothing varies"):
        drained(run(kept.config, replace(inputs, sets=sets), output=output))
    assert kept.contents() == before


def test_without_weights_to_keep_the_old_ones_stay(kept: Kept) -> None:
    output = kept.output(keep_checkpoint=False, again=True)
    drained(run(kept.config, LOADER.load(kept.config), output=output))
    assert (kept.weights / MARK).exists()
