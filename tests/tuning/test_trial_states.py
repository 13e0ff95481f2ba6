"""States of running trials: gone when a trial ends, taken up by whoever repeats the search."""

from pathlib import Path
from typing import Any

import pytest
from planted_spaces import let_toys_have_all_stages
from search_samples import (
    draw_in_order,
    lambda_space,
    numbers,
    rows,
    run_here,
    run_planted,
)
from stand_in import StandIn, by
from stops import Stopped

from tune_sentcl.config import TrialConfig
from tune_sentcl.store.study import Study
from tune_sentcl.trial import output as saving
from tune_sentcl.tuning import keeping
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.search import confirmation_of, run_and_confirm, run_search

SHORT = "optimizer.epochs = 4\nevaluation.every = 4"
OFTEN = 0.0005
CURVE = ((192, 1.0), (384, 2.0), (768, 3.0), (1536, 4.0))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was slow once makes no trial wait long for its next state."""
    monkeypatch.setattr(saving, "_SHARE", 0.5)


def planted(study: Path, points: int | None = None, curve: Any = CURVE, **how: Any) -> StandIn:
    """A launcher that trains nothing; its trials write a state behind each point but the last."""
    return StandIn(study, at_once=1, saves=True, points=points, curve=lambda config: curve, **how)


def resumed(launcher: StandIn, name: str) -> int:
    """Behind how many points a trial began."""
    (behind,) = [
        left for what, begun, (_, left) in launcher.events if (what, begun) == ("begins", name)
    ]
    return behind


def test_a_state_is_gone_when_its_trial_has_ended(tmp_path: Path) -> None:
    space, study, never = (tmp_path / name for name in ("space", "study", "never"))
    saved = lambda_space(space, 0.3, fixed=SHORT)
    run_here(saved, study, save_every=OFTEN)
    (row,) = rows(study)
    assert 0 < row["saving_seconds"] < row["wall_seconds"]
    assert not any((study / "states").iterdir())
    run_here(saved, never, save_every=0)
    assert rows(never)[0]["saving_seconds"] == 0
    assert not (never / "states").exists()
    assert numbers(study) == numbers(never)


def by_lambda(config: TrialConfig) -> list[tuple[int, float]]:
    return [(point, config.dotted()["method.lambda"]) for point in range(1, 65)]


HALVING: dict[str, Any] = {"scheduler": "halving", "sampler": "random"}


@pytest.mark.parametrize(("gigabytes", "kept"), [(20.0, 4), (2.5, 1), (0.0, 0)])
def test_the_best_of_the_paused_trials_keep_their_states_as_far_as_these_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gigabytes: float, kept: int
) -> None:
    let_toys_have_all_stages(monkeypatch)
    draw_in_order(monkeypatch)  # so that each is the best so far
    monkeypatch.setattr(keeping, "state_bytes", lambda *_: 10**9)
    ranges = "method.lambda = { choices = [0.1, 0.2, 0.4, 0.5, 0.6] }"
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=ranges), tmp_path / "study"
    launcher = planted(study)
    launcher.curve = by_lambda
    run_planted(space, study, launcher, samples=5, states=gigabytes, **HALVING)
    paused = [row for row in rows(study) if row["status"] == "pruned"]
    paused.sort(key=lambda row: -row["method.lambda"])
    assert len(paused) == 4  # a fifth one went on, beside whose state the others had to fit
    assert Study.read(study).states() == {row["trial_id"] for row in paused[:kept]}


def test_trap_a_confirming_trial_goes_on_where_the_command_is_repeated(tmp_path: Path) -> None:
    """The search before it is complete, and lets its state lie."""
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, confirm=1)
    whole = ask(space, None, (0,), options)
    run_search(whole, str(study), by(planted(study)))
    again = confirmation_of(whole, str(study))
    assert again is not None
    with pytest.raises(Stopped):
        run_search(again, str(study), by(planted(study, 1)))
    (name,) = Study.read(study).states()
    launcher = planted(study)
    run_and_confirm(ask(space, None, (0,), options), str(study), by(launcher))
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert (row["status"], row["origin"], resumed(launcher, name)) == ("finished", "confirm", 1)
    assert not any((study / "states").iterdir())
