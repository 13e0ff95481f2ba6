"""The journal for optuna-dashboard, read back by plain Optuna."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState
from search_samples import lambda_space

from tune_sentcl.history import Configuration, Result
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import Space
from tune_sentcl.tuning.journal import JournalMirror
from tune_sentcl.tuning.sampler import distributions

RANGES = """
method.lambda = { low = 0.0, high = 0.9 }
method.num_positives = { choices = [1, "all"] }
"""
PAUSED = Result("pruned", (), {0.0625: 0.1, 0.25: 0.2})
LUCKY = Result("finished", (9.0,), {0.0625: 0.3})
ENDS: list[tuple[list[Result], TrialState, list[float] | None, dict[int, float]]] = [
    ([Result("finished", (5.0,)), Result("finished", (7.0,))], TrialState.COMPLETE, [6.0], {}),
    ([PAUSED], TrialState.PRUNED, None, {6: 0.1, 25: 0.2}),
    ([Result("failed"), LUCKY], TrialState.FAIL, None, {6: 0.3}),
    ([LUCKY, Result("pruned")], TrialState.COMPLETE, [9.0], {6: 0.3}),
    ([Result("finished", (None,))], TrialState.FAIL, None, {}),
]
"""The results of a configuration's seeds, and what the journal says of it."""


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Space:
    folder, fixed = tmp_path_factory.mktemp("space"), "method.num_positives = 1"
    return lambda_space(folder, 0.95, 1.0, ranges=RANGES, fixed=fixed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "study").mkdir()
    return tmp_path / "study/optuna.journal"


def configured(space: Space, number: int, results: list[Result]) -> Configuration:
    """The first is a grid point outside the ranges."""
    knobs = {"method.lambda": 1 / (number + 1), "method.num_positives": (1, "all")[number % 2]}
    origin: Any = "sampler" if number else "grid"
    values = {**space.configurations[0].dotted(), **knobs}
    return Configuration(f"c{number}", origin, values, {}, dict(enumerate(results)))


def ended(space: Space) -> list[Configuration]:
    return [configured(space, number, end[0]) for number, end in enumerate(ENDS)]


def load(path: Path) -> optuna.Study:
    return optuna.load_study(
        study_name="tiny", storage=JournalStorage(JournalFileBackend(str(path)))
    )


def shown(path: Path) -> list[FrozenTrial]:
    trials = load(path).get_trials()
    assert [t.user_attrs["configuration"] for t in trials] == [f"c{t.number}" for t in trials]
    for trial, (_, state, values, points) in zip(trials, ENDS, strict=False):
        assert (trial.state, trial.values) == (state, values)
        assert trial.intermediate_values == points
    return trials


def test_optuna_reads_each_ended_configuration_also_after_a_kill_at_any_byte(
    space: Space, path: Path
) -> None:
    notes: list[str] = []
    mirror = JournalMirror(path, space, [str(DEFAULT)], notes.append)
    for one in ended(space):
        mirror.add([one, one, configured(space, 9, [])])  # the last one has no result
    grid, sampled, *_ = trials = shown(path)
    assert len(trials) == len(ENDS)
    assert grid.params == {"method.lambda": 1.0}, "what differs between grid points"
    assert grid.distributions == {"method.lambda": FloatDistribution(0.95, 1.0)}
    assert sampled.params == {"method.lambda": 0.5, "method.num_positives": "all"}
    assert sampled.distributions == distributions(space, sampled.params)
    assert load(path).metric_names == [str(DEFAULT)] and load(path).best_value == 9.0
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2 + len(ENDS), "a line for each: a kill leaves none that is half shown"
    for count in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:count]) + lines[count][:-9])
        assert len(shown(path)) == max(0, count - 2)
    assert notes == []


def test_a_cost_is_minimized(space: Space, path: Path) -> None:
    mirror = JournalMirror(path, space, [str(DEFAULT), "cost:megabytes:dev"], pytest.fail)
    for number, values in enumerate([(70.0, 90.0), (70.0, 5.0)]):
        mirror.add([configured(space, number, [Result("finished", values)])])
    (best,) = load(path).best_trials
    assert best.values == [70.0, 5.0]


def hold_lock(path: Path) -> None:
    path.touch()
    JournalFileSymlinkLock(str(path)).acquire()  # as a killed dashboard does


@pytest.mark.parametrize(
    "leave",
    [
        lambda path: path.write_bytes(b"hello\n\xff\n[]\n"),
        lambda path: path.symlink_to(path.parent.parent / "other"),
        lambda path: path.symlink_to(path.parent / "nowhere"),
        hold_lock,
    ],
    ids=["another text", "a link", "a link to nothing", "a lock"],
)
def test_a_run_writes_the_journal_anew_whatever_lies_there(
    space: Space, path: Path, leave: Callable[[Path], None]
) -> None:
    other = path.parent.parent / "other"
    other.write_bytes(b"of another")
    leave(path)
    for _ in range(2):
        JournalMirror(path, space, [str(DEFAULT)], pytest.fail).add(ended(space))
        assert len(shown(path)) == len(ENDS)
    assert other.read_bytes() == b"of another" and not (path.parent / "nowhere").exists()


def test_trap_an_error_is_said_once_and_mended_by_the_next_run(space: Space, path: Path) -> None:
    notes: list[str] = []
    mirror = JournalMirror(path, space, [str(DEFAULT)], notes.append)
    first, *others = ended(space)
    mirror.add([first])
    path.rename(path.with_name("moved"))
    path.mkdir()
    for one in others:
        mirror.add([one])
    path.rmdir()
    path.with_name("moved").rename(path)
    mirror.add(others)
    (note,) = notes
    assert note.startswith(f"{path} gets no further trials: IsADirectoryError: ")
    assert len(shown(path)) == 1, "silent since"
    JournalMirror(path, space, [str(DEFAULT)], notes.append).add(ended(space))
    assert len(shown(path)) == len(ENDS) and len(notes) == 1
