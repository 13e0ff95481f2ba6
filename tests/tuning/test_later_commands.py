"""A later command over a study: what it refuses, and what it reads."""

import re
from pathlib import Path
from typing import Any

import pytest
from disk_samples import write_sts_root
from search_samples import (
    lambda_space,
    objectives,
    rows,
    run_planted,
)

from tune_sentcl.errors import ObjectiveError, StudyError
from tune_sentcl.history import History
from tune_sentcl.objective import DEFAULT
from tune_sentcl.store.study import Study
from tune_sentcl.tuning import search as search_run
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask

MORE: dict[str, Any] = {"evaluation.suites": ["sts", "transfer"]}


def test_a_study_has_one_kind_of_evaluation_data(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_planted(space, study)
    before = rows(study)
    asked = space.with_overrides({"evaluation.data": "root"})
    root = write_sts_root(tmp_path / "root")
    with pytest.raises(StudyError, match=r"were scored on toy data.*Choose another folder"):
        run_planted(asked, study, data=root)
    assert rows(study) == before
    with pytest.raises(
        StudyError, match="was scored on toy evaluation data, but this search uses"
    ):
        run_planted(asked, tmp_path / "other", data=root, learn_from=(str(study),))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("settings", "objective", "mends"),
    [
        ({}, "SST2:accuracy:dev", MORE),
        (MORE, "MR:accuracy:dev:senteval-5fold", {"evaluation.protocols": ["senteval-5fold"]}),
        ({}, "STS-B:pearson:dev:relatedness", {"evaluation.protocols": ["relatedness"]}),
    ],
)
def test_an_objective_without_its_measurement_names_the_setting_that_adds_it(
    tmp_path: Path, settings: dict[str, Any], objective: str, mends: dict[str, Any]
) -> None:
    space = lambda_space(tmp_path / "space", 0.3).with_overrides(settings)
    study, (key,) = tmp_path / "study", mends
    with pytest.raises(ObjectiveError, match=rf"--set '?{re.escape(key)}"):
        run_planted(space, study, objectives=(objective,))
    assert not study.exists()
    run_planted(space.with_overrides({**settings, **mends}), study, objectives=(objective,))
    assert len(objectives(study)) == 1


def test_an_objective_that_no_set_at_hand_gives_is_refused(tmp_path: Path) -> None:
    compat = {**MORE, "evaluation.protocols": ["cosine", "scl-paper-compat"]}
    space = lambda_space(tmp_path / "space", 0.1).with_overrides(compat)
    with pytest.raises(ObjectiveError, match="no readable evaluation set has this score"):
        ask(space, None, None, SearchOptions(objectives=("MR:accuracy:dev:scl-paper-compat",)))


def test_a_trial_that_ends_between_two_reads_is_in_the_next_reading(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.2), tmp_path / "study"
    run_planted(space.with_overrides({"method.lambda": 0.1}), study)

    class Grows(Study):
        """A study in which another trial ends once its rows have been read."""

        def scores(self, *arguments: Any) -> Any:
            run_planted(space, study)
            return super().scores(*arguments)

    kept = Study.read(study)
    assert len(History.read(Grows(kept.files, kept.manifest), [DEFAULT])) == 1
    assert len(History.read(Study.read(study), [DEFAULT])) == 2


def test_a_study_that_another_command_began_meanwhile_is_not_taken_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1), tmp_path / "study"
    run_planted(space, study)
    monkeypatch.setattr(search_run, "study_at", lambda *_: None)
    with pytest.raises(StudyError, match=r"in the meantime.*Repeat the command"):
        run_planted(space, study)
