"""The lines that a search writes where there is no live terminal."""

import io
import re
from pathlib import Path

import pytest
from processes import Clock
from rich.console import Console
from search_samples import LAMBDA, lambda_space, rows, run_planted

from tune_sentcl.trial import Progress
from tune_sentcl.watch.terminal import RichWatcher


def held_best(study: Path) -> str:
    return f"{max(row['objective'] for row in rows(study) if row['origin'] != 'confirm'):.2f}"


def test_a_repeated_search_says_first_what_is_left_and_what_is_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    run_planted(lambda_space(tmp_path / "a", 0.1, 0.9, ranges=LAMBDA), study)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("2 of 2 trials to run, ")
    assert second == "best so far none (STS-B:spearman:dev)"

    best = held_best(study)
    run_planted(lambda_space(tmp_path / "b", 0.1, 0.9, ranges=LAMBDA), study, samples=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("1 of 3 trials to run, ")
    assert lines[1] == f"best so far {best} (STS-B:spearman:dev)"
    assert any(re.match(r"1 trials in \d+:\d\d, \d+\.\d a minute$", line) for line in lines)
    ended = next(line for line in lines if line.startswith("[3/3]"))
    assert f"best {held_best(study)} " in ended

    run_planted(lambda_space(tmp_path / "c", 0.1, 0.9, ranges=LAMBDA), study, samples=1)
    lines = capsys.readouterr().err.splitlines()
    assert not any("a minute" in line for line in lines)
    assert lines[:2] == ["no trial to run", f"best so far {held_best(study)} (STS-B:spearman:dev)"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_points_of_a_running_trial_are_written_every_half_minute_beside_no_live_line(
    is_terminal: bool,
) -> None:
    written, clock = io.StringIO(), Clock()
    watcher = RichWatcher(Console(file=written, width=200, force_terminal=is_terminal), clock)
    for seconds in range(0, 100, 10):
        clock.now = float(seconds)
        point = Progress(seconds, 100, 8 * seconds, 40.0 + seconds, (), {}, final=False)
        watcher.point("abc", point)
    lines = [f"trial abc is at step {n} of 100, {40 + n}.00 on dev" for n in (30, 60, 90)]
    assert written.getvalue().splitlines() == ([] if is_terminal else lines)
