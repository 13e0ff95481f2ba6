"""Confirmation seeds choose no configuration, teach no sampler, and may be quoted."""

from pathlib import Path
from typing import Any

import pytest
from search_samples import lambda_space, rows
from stand_in import StandIn, by

from tune_sentcl.analysis.frames import configurations
from tune_sentcl.errors import ConfigError
from tune_sentcl.results.judgement import judge
from tune_sentcl.space import Space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.search import SearchOutcome, confirmation_of, run_search


def run(
    space: Space, study: Path, fate: Any = lambda config: "finish", **options: Any
) -> SearchOutcome:
    """A search of planted trials and its confirmation, as `search` puts them together."""
    seeds = options.pop("seeds", (0, 1))
    asked = SearchOptions(launcher="local", gpus_per_trial=0.0, **options)
    question = ask(space, None, seeds, asked)
    outcome = run_search(question, str(study), by(StandIn(study, fate)))
    again = confirmation_of(question, str(study))
    if again is None:
        return outcome
    return outcome.combined_with(
        run_search(again, str(study), by(StandIn(study, fate, keep=False)))
    )


def fresh(study: Path) -> list[dict[str, Any]]:
    found = [row for row in rows(study) if row["origin"] == "confirm"]
    return sorted(found, key=lambda row: row["seed"])


def both(study: Path) -> list[int]:
    """The confirmation seeds of two configurations, which are the same ones."""
    first, second = (
        [row["seed"] for row in fresh(study) if row["configuration"] == name]
        for name in sorted({row["configuration"] for row in fresh(study)})
    )
    assert first == second
    return first


def confirmations(study: Path) -> list[tuple[int, ...]]:
    """The seeds of each confirmation."""
    search = Study.read(study).manifest.search
    assert search is not None and search.seed_plan is not None
    return [look.seeds for look in search.seed_plan.confirmations]


def test_confirmations_double_and_reuse_their_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Finds bought seeds that the next confirmation throws away, and a number chosen by a look.
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    run(space, study, confirm=2)
    assert run(space, study, confirm=2).ran == 0
    assert run(space, study, confirm=3).ran == 4
    assert "4 confirmation seeds are used instead of 3" in capsys.readouterr().err
    assert both(study) == [1000, 1001, 1002, 1003]
    assert run(space, study, confirm=2).ran == 0, "the first command, again"
    assert run(space, study, confirm=16).ran == 24
    assert confirmations(study) == [tuple(range(1000, 1000 + n)) for n in (2, 4, 8, 16)]


def test_a_later_winner_is_confirmed_on_seeds_of_its_own(tmp_path: Path) -> None:
    # Finds a first confirmation that blocks all later ones.
    study = tmp_path / "study"
    for name, lambdas in (("first", (0.1, 0.7)), ("second", (0.1, 0.7, 0.3))):
        run(lambda_space(tmp_path / name, *lambdas), study, confirm=3)
    search = Study.read(study).manifest.search
    assert search is not None and search.seed_plan is not None
    first, second = search.seed_plan.confirmations
    assert first.configurations[0] != second.configurations[0]
    assert (first.seeds, second.seeds) == ((1000, 1001, 1002), (1003, 1004, 1005))
    baseline, *_ = judge(Study.read(study))
    assert (baseline.a.name, baseline.row()["n"]) == (second.configurations[0], 3)
    assert baseline.source == "confirm" and baseline.row()["level"] == pytest.approx(1 - 0.04 / 5)


def test_seeds_that_a_later_search_is_asked_for_are_fresh_no_more(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    run(space, study, confirm=3)
    assert both(study) == [1000, 1001, 1002]
    assert run(space, study, seeds=(0, 1, 1000, 1001)).ran == 0
    assert both(study) == [1002]
    assert sorted(configurations(Study.read(study))["objective_n"]) == [4, 4]
    run(space, study, confirm=2)
    assert both(study) == [1002, 1003, 1004]


def test_nothing_is_confirmed_where_no_configuration_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    run(space, study, lambda config: "fail", confirm=2)
    assert fresh(study) == []
    assert "nothing is confirmed" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="confirm"):
        run(space, study, confirm=-1)
