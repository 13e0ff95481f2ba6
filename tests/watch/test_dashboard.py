"""optuna-dashboard on a study's journal, by the reader with which it reads one."""

from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from search_samples import LAMBDA, lambda_space, mirrored, run_planted
from staged import fate, run_staged
from stand_in import StandIn, Stopped


def states(study: Path) -> Counter[str]:
    return Counter(trial.state.name for trial in mirrored(study))


@pytest.mark.parametrize(
    ("ranges", "due"),
    [
        ("", {3: {"COMPLETE": 1}, 5: {"COMPLETE": 1, "FAIL": 1}}),
        (
            LAMBDA,
            {
                10: {"COMPLETE": 1, "FAIL": 1},  # those that are paused may go on
                11: {"COMPLETE": 2, "PRUNED": 3, "FAIL": 1},
            },
        ),
    ],
    ids=["a grid alone", "ranges"],
)
def test_the_dashboard_shows_what_has_ended_of_a_search(
    tmp_path: Path, ranges: str, due: dict[int, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grid's points lie in no range; their axes are then the grid's own."""
    study, calls = tmp_path / "study", count(1)

    def look() -> None:
        if expected := due.pop(next(calls), None):
            assert states(study) == expected

    class Watched(StandIn):
        def _die(self) -> None:  # behind each point, and before each end
            look()

    run_staged(tmp_path, Watched(study, fate), monkeypatch, ranges=ranges)
    look()
    assert not due
    shown = {trial.params["method.lambda"]: trial for trial in mirrored(study)}
    assert all(trial.params.keys() == {"method.lambda"} for trial in shown.values())
    assert shown[0.25].state.name == "COMPLETE" and len(shown[0.25].values) == 1
    assert shown[0.75].state.name == "FAIL"
    points = [one.intermediate_values for key, one in shown.items() if key not in (0.25, 0.75)]
    assert points == ([{25: 10.0}] * 4 if ranges else [])


def test_a_journal_is_written_anew_after_a_kill(tmp_path: Path) -> None:
    study = tmp_path / "study"
    space = lambda_space(tmp_path / "space", 0.25, 0.5, 0.75, ranges=LAMBDA)
    with pytest.raises(Stopped):
        run_planted(space, study, StandIn(study, points=2))
    assert states(study) == {"COMPLETE": 1}
    run_planted(space, study)
    assert states(study) == {"COMPLETE": 3}
