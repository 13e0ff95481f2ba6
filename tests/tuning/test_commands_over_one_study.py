"""Where two features meet: what a study holds from one command, and what another one asks."""

from pathlib import Path
from typing import Any

import pytest
from search_samples import (
    NoInputs,
    lambda_space,
    mirrored,
    rows,
    run_planted,
    tiny_space,
)

from tune_sentcl.errors import ObjectiveError, StudyError
from tune_sentcl.history import History
from tune_sentcl.objective import DEFAULT
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.past_trials import past_studies
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.search_options import SearchOptions

THREE = "method.lambda = { choices = [0.1, 0.2, 0.3] }"
TRANSFER: dict[str, Any] = {"evaluation.suites": ["sts", "transfer"]}


def test_what_another_command_has_run_is_never_run_again(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, ranges=THREE), tmp_path / "study"
    run_planted(space.with_overrides({"method.lambda": 0.3}), study)
    outcome, actions = run_planted(space, study, trials=2, sampler="random")
    assert actions == ["train", "train"]
    assert outcome.exhausted
    found = {row["method.lambda"]: (row["origin"], row["attempt"]) for row in rows(study)}
    assert found == {0.3: ("grid", 1), 0.1: ("grid", 1), 0.2: ("sampler", 1)}
    shown = {trial.params["method.lambda"]: trial.value for trial in mirrored(study)}
    values = {row["method.lambda"]: row["objective"] for row in rows(study)}
    assert shown == {at: values[at] for at in (0.1, 0.2)}, "what this search ranks"


def test_an_end_between_two_reads_is_in_the_next_reading(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.2), tmp_path / "study"
    run_planted(space.with_overrides({"method.lambda": 0.1}), study)

    class Grows(Study):
        """A study in which another trial ends once its rows have been read."""

        def scores(self, *arguments: Any) -> Any:
            run_planted(space, study)
            return super().scores(*arguments)

    kept = Study.read(study)
    history = History.read(Grows(kept.files, kept.manifest), [DEFAULT])
    assert len(history) == 1
    assert len(History.read(Study.read(study), [DEFAULT])) == 2


@pytest.mark.parametrize("other", ["augment", "conisi"])
def test_another_method_s_study_teaches_nothing_of_this_one(tmp_path: Path, other: str) -> None:
    fixed = "" if other == "augment" else 'data.order = "file"'
    theirs = tiny_space(
        tmp_path / "theirs",
        f'fixed.method.name = "{other}"\ngrid.method.lambda = [0.1, 0.2]',
        fixed=fixed,
    )
    run_planted(theirs, tmp_path / "other")
    space = lambda_space(tmp_path / "space", 0.1, ranges=THREE)
    with pytest.raises(StudyError, match="no configuration in the ranges of tiny"):
        past_studies([str(tmp_path / "other")], space, [DEFAULT], NoInputs())
    own = lambda_space(tmp_path / "own", 0.1, 0.2)
    run_planted(own, tmp_path / "same")
    (found,) = past_studies([str(tmp_path / "same")] * 2, space, [DEFAULT], NoInputs())
    assert len(found) == 2


def test_an_objective_that_no_set_at_hand_gives_is_refused(tmp_path: Path) -> None:
    compat = {**TRANSFER, "evaluation.protocols": ["cosine", "scl-paper-compat"]}
    space = lambda_space(tmp_path / "space", 0.1).with_overrides(compat)
    options = SearchOptions(
        launcher="local", objectives=("MR:accuracy:dev:scl-paper-compat",), gpus_per_trial=0.0
    )
    with pytest.raises(ObjectiveError, match="no set at hand gives it"):
        prepare(space, None, None, options)


def test_two_points_of_one_trial_ask_for_all_that_either_asks_for(tmp_path: Path) -> None:
    block = 'fixed.method.lambda = 0.1\ngrid.evaluation.suites = [["sts"], ["sts", "transfer"]]'
    space, study = tiny_space(tmp_path / "space", block), tmp_path / "study"
    outcome, _ = run_planted(space, study)
    assert (outcome.trials, outcome.ran) == (1, 1)
    assert set(Study.read(study).scores()["suite"].to_pylist()) == {"sts", "transfer"}
    apart = 'fixed.method.lambda = 0.1\ngrid.evaluation.protocols = [["relatedness"], ["cosine"]]'
    both = tiny_space(tmp_path / "both", apart)
    run_planted(both, tmp_path / "other")
    protocols = set(Study.read(tmp_path / "other").scores()["protocol"].to_pylist())
    assert protocols == {"cosine", "relatedness"}


def test_a_study_that_another_command_has_begun_since_is_not_taken_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1), tmp_path / "study"
    run_planted(space, study)
    monkeypatch.setattr(PreparedSearch, "study_at", lambda *_: None)
    with pytest.raises(StudyError, match=r"in the meantime.*Repeat the command"):
        run_planted(space, study)
