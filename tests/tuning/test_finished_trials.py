"""A search over trials that have finished: what is asked of them again, and what never."""

from pathlib import Path
from typing import Any

import pytest
from search_samples import (
    LAMBDA,
    Row,
    checkpoints,
    lambda_space,
    mirrored,
    numbers,
    objectives,
    rows,
    run_here,
    run_planted,
)
from stand_in import StandIn

from tune_sentcl.config import TrialConfig
from tune_sentcl.space import Space
from tune_sentcl.store.study import Study

MORE: dict[str, Any] = {"evaluation.suites": ["sts", "transfer"]}
SST2 = frozenset({"SST2"})


def everything(study: Path) -> list[list[Row]]:
    """The three tables, each in an order of its own."""
    kept = Study.read(study)
    tables = (kept.trials(), kept.scores(), kept.curves())
    return [sorted(t.to_pylist(), key=lambda row: str(sorted(row.items()))) for t in tables]


def raising(study: Path) -> StandIn:
    """Who fails whatever it is given."""
    return StandIn(study, lambda config: "fail")


def two(folder: Path, keep: int) -> tuple[Space, Path]:
    """A space of two trials, and a study in which they have finished."""
    space, study = lambda_space(folder / "space", 0.3, 0.7), folder / "study"
    assert run_planted(space, study, keep=keep)[1] == ["train", "train"]
    return space.with_overrides(MORE), study


def has_transfer(study: Path) -> set[str]:
    return {key[0] for key, value in numbers(study).items() if key[1] == "SST2"}


def test_what_would_have_to_be_trained_again_is_left_and_nothing_is_lost(tmp_path: Path) -> None:
    asked, study = two(tmp_path, keep=0)
    before = everything(study)
    names = set(objectives(study))
    assert len(names) == 2
    for _ in range(2):
        outcome, actions = run_planted(asked, study, raising(study), keep=0)
        assert actions == []
        assert (outcome.ran, outcome.failures, set(outcome.needs_retraining)) == (0, 0, names)
        assert everything(study) == before


@pytest.mark.parametrize("end", ["fail", "lose"])
def test_a_retraining_that_comes_to_nothing_leaves_row_scores_and_curves(
    tmp_path: Path, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, study = two(tmp_path, keep=0)
    before = everything(study)
    fate: Any = lambda config: end  # noqa: E731
    outcome, _ = run_planted(asked, study, StandIn(study, fate), keep=0, retrain=True)
    assert (outcome.ran, outcome.failures) == (2, 2)
    assert everything(study) == before
    assert capsys.readouterr().err.count("failed: ") == outcome.failures
    assert run_planted(asked, study, keep=0, retrain=True)[1] == ["retrain"] * 2


def test_a_retraining_replaces_scores_and_curves(tmp_path: Path) -> None:
    """Real training."""
    space = lambda_space(tmp_path / "space", 0.3, fixed="evaluation.every = 1")
    study = tmp_path / "study"
    run_here(space, study, keep=0)
    before = everything(study)
    outcome = run_here(space.with_overrides(MORE), study, keep=0, retrain=True)
    assert (outcome.ran, outcome.failures) == (1, 0)
    assert everything(study)[0][0]["objective"] == before[0][0]["objective"]
    assert has_transfer(study) == set(objectives(study))
    assert len(everything(study)[2]) == len(before[2])


def test_weights_that_wait_for_their_measurement_outlive_the_first_one_that_ends(
    tmp_path: Path,
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7), tmp_path / "study"
    run_planted(space, study, keep=3)
    values = objectives(study)
    assert checkpoints(study) == values.keys()
    outcome, actions = run_planted(space.with_overrides(MORE), study, StandIn(study, at_once=1))
    assert (actions, outcome.failures, outcome.needs_retraining) == (["measure"] * 3, 0, ())
    assert has_transfer(study) == values.keys()
    assert checkpoints(study) == {max(values, key=lambda name: values[name])}


def missing(study: Path) -> dict[str, list[Row]]:
    """The scores that could not be taken, a trial."""
    found: dict[str, list[Row]] = {}
    for score in Study.read(study).scores().to_pylist():
        if score["value"] is None:
            found.setdefault(score["trial_id"], []).append(score)
    return found


@pytest.mark.parametrize("keep", [0, 3])
def test_a_score_that_always_fails_is_never_trained_for_and_tried_once_a_repetition(
    tmp_path: Path, keep: int
) -> None:
    space = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7, ranges=LAMBDA)
    space = space.with_overrides(MORE)
    study = tmp_path / "study"
    outcome, actions = run_planted(space, study, StandIn(study, broken=SST2), keep=keep)
    assert (actions, outcome.failures) == (["train"] * 3, 0)
    names = set(objectives(study))
    for _ in range(3):
        stand_in = StandIn(study, broken=SST2, at_once=1)
        outcome, actions = run_planted(space, study, stand_in, keep=keep, retrain=True)
        # The first one shows that the reason still holds, so that no other one is tried for it.
        assert actions == (["measure"] if keep else [])
        assert (outcome.failures, outcome.needs_retraining) == (0, ())
        assert len(mirrored(study)) == 3, "what is not worth a try is told all the same"
        assert {row["status"] for row in rows(study)} == {"finished"}
        assert {row["attempt"] for row in rows(study)} == {1}
        found = missing(study)
        assert found.keys() == names
        for scores in found.values():
            assert [(s["task"], s["reason"]) for s in scores] == [("SST2", "it is broken")]
    run_planted(space, study, keep=keep)
    assert missing(study).keys() == (set() if keep else names)


def test_where_the_reason_has_gone_every_trial_is_tried_again(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7).with_overrides(MORE)
    study = tmp_path / "study"
    run_planted(space, study, StandIn(study, broken=SST2), keep=3)
    other = StandIn(study, broken=frozenset({"TREC"}), at_once=1)
    assert run_planted(space, study, other, keep=3)[1] == ["measure"] * 3
    assert missing(study) == {}, "a number is not lost to a later failure"


def test_a_failed_training_is_tried_again_where_only_its_measuring_would_fail(
    tmp_path: Path,
) -> None:
    space = lambda_space(tmp_path / "space", 0.1, 0.3).with_overrides(MORE)
    study = tmp_path / "study"

    def fate(config: TrialConfig) -> Any:
        return "fail" if config.dotted()["method.lambda"] == 0.3 else "finish"

    run_planted(space, study, StandIn(study, fate, SST2))
    stand_in = StandIn(study, broken=SST2)
    assert sorted(run_planted(space, study, stand_in)[1]) == ["measure", "train"]
    assert sorted((row["status"], row["attempt"]) for row in rows(study)) == [
        ("finished", 1),
        ("finished", 2),
    ]
