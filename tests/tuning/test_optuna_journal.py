"""The journal for optuna-dashboard, read back by plain Optuna."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState
from search_samples import lambda_space

from tune_sentcl.history import Configuration, Result
from tune_sentcl.space import Space
from tune_sentcl.tuning.sampler.optuna_journal import JournalMirror

RANGES = """
method.lambda = { low = 0.0, high = 0.9 }
method.num_positives = { choices = [1, "all"] }
"""
PAUSED = Result("pruned", (), {0.0625: 0.1, 0.25: 0.2})
LUCKY = Result("finished", (9.0,), {0.0625: 0.3})
ENDS: tuple[tuple[tuple[Result, ...], TrialState, float | None], ...] = (
    ((Result("finished", (5.0,)), Result("finished", (7.0,))), TrialState.COMPLETE, 6.0),
    ((PAUSED,), TrialState.PRUNED, None),
    ((Result("failed", error_type="NonFiniteError"), LUCKY), TrialState.FAIL, None),
    ((LUCKY, Result("pruned")), TrialState.COMPLETE, 9.0),
    ((Result("finished", (None,)),), TrialState.FAIL, None),
)
"""The results of the seeds of a configuration, and what the journal says of it at the end."""


@dataclass
class Journal:
    """A journal's file, the mirrors that are opened on it, and what they say."""

    path: Path
    space: Space
    notes: list[str] = field(default_factory=list)
    found: dict[str, Configuration] = field(default_factory=dict)

    def configure(self, count: int) -> list[str]:
        """Configurations without results; the first is a grid point outside the ranges."""
        base = self.space.configurations[0].dotted()
        for index in range(len(self.found), count):
            knobs = {
                "method.lambda": 1 / (index + 1),
                "method.num_positives": (1, "all")[index % 2],
            }
            origin: Any = "sampler" if index else "grid"
            self.found[f"c{index}"] = Configuration(f"c{index}", origin, {**base, **knobs})
        return list(self.found)

    def give(self, name: str, results: Sequence[Result]) -> None:
        self.found[name].results = dict(enumerate(results))

    def give_all(self) -> None:
        for index, name in enumerate(self.found):
            self.give(name, ENDS[index % len(ENDS)][0])

    def open(self, objectives: Sequence[str] = ("dev",)) -> JournalMirror:
        return JournalMirror(self.path, self.space, objectives, self.found, self.notes.append)

    def study(self) -> optuna.Study:
        storage = JournalStorage(JournalFileBackend(str(self.path)))
        return optuna.load_study(study_name="tiny", storage=storage)

    def trials(self) -> dict[str, FrozenTrial]:
        trials = self.study().get_trials()
        assert [t.number for t in trials] == list(range(len(trials)))
        return {t.user_attrs["configuration"]: t for t in trials}

    def shows_ends(self, count: int) -> bool:
        """Whether plain Optuna finds exactly so many configurations, each as it ended."""
        shown = self.trials()
        return list(shown) == list(self.found)[:count] and all(
            (trial.state, trial.values) == (state, None if value is None else [value])
            for trial, (_, state, value) in zip(shown.values(), ENDS * 9, strict=False)
        )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    folder = tmp_path / "journal"
    space = lambda_space(
        tmp_path / "space", 0.95, 1.0, ranges=RANGES, fixed="method.num_positives = 1"
    )
    folder.mkdir()
    yield Journal(folder / "optuna.journal", space)
    assert sorted(p.name for p in folder.iterdir()) == ["optuna.journal"]


def test_optuna_reads_what_began_what_runs_and_how_it_ended(journal: Journal) -> None:
    names = journal.configure(5)
    mirror = journal.open()
    assert journal.trials() == {}
    for name in names * 2:
        mirror.begin(name)
    running = journal.trials()
    assert {t.state for t in running.values()} == {TrialState.RUNNING}
    assert running["c0"].params == {"method.lambda": 1.0}, "what differs between grid points"
    assert running["c1"].params == {"method.lambda": 0.5, "method.num_positives": "all"}
    journal.give_all()
    for name in names * 2:
        mirror.point(name)
    points = {name: t.intermediate_values for name, t in journal.trials().items()}
    assert [points[name] for name in names[:3]] == [{}, {6: 0.1, 25: 0.2}, {6: 0.3}]
    assert {t.state for t in journal.trials().values()} == {TrialState.RUNNING}
    for name in names[::-1] * 2:
        mirror.end(name)
    assert journal.shows_ends(5)
    assert journal.study().metric_names == ["dev"] and journal.study().best_value == 9.0
    assert journal.notes == []


def test_what_has_no_result_goes_on_running_and_what_did_not_begin_is_not_shown(
    journal: Journal,
) -> None:
    journal.configure(3)
    mirror = journal.open()
    mirror.begin("c0")
    mirror.end("c0")
    mirror.end("c1")
    assert {n: t.state for n, t in journal.trials().items()} == {"c0": TrialState.RUNNING}
    assert journal.notes == []


def test_several_objectives_have_their_names_and_directions(journal: Journal) -> None:
    journal.configure(2)
    journal.give("c0", [Result("finished", (1.0, 2.0)), Result("finished", (3.0, 6.0))])
    journal.give("c1", [Result("finished", (1.0, None))])
    mirror = journal.open(objectives=("sts", "transfer"))
    for name in journal.found:
        mirror.end(name)
    assert journal.study().metric_names == ["sts", "transfer"]
    assert journal.study().directions == [optuna.study.StudyDirection.MAXIMIZE] * 2
    assert [t.values for t in journal.trials().values()] == [[2.0, 4.0], None]
    assert journal.trials()["c1"].state == TrialState.FAIL


def whole(journal: Journal, count: int) -> Mapping[str, FrozenTrial]:
    """A run that ends so many configurations, some of which an earlier one has ended."""
    journal.configure(count)
    journal.give_all()
    mirror = journal.open()
    for name in journal.found:
        mirror.begin(name)
        mirror.point(name)
        mirror.end(name)
    return journal.trials()


def test_each_run_writes_the_journal_anew_whatever_it_holds(journal: Journal) -> None:
    whole(journal, 3)
    for held in (b"", b"hello\n\xff\n[]\n", journal.path.read_bytes()[:-40]):
        journal.path.write_bytes(held)
        whole(journal, len(journal.found) + 1)
        assert journal.shows_ends(len(journal.found))
    journal.open()
    reopened = journal.trials()
    assert {t.state for t in reopened.values()} == {TrialState.RUNNING}, "until the search closes"
    assert reopened["c1"].intermediate_values == {6: 0.1, 25: 0.2}
    assert journal.notes == []


def test_a_lock_that_a_killed_dashboard_left_stops_nothing(journal: Journal) -> None:
    whole(journal, 2)
    lock = JournalFileSymlinkLock(str(journal.path))
    assert lock.acquire()
    whole(journal, 4)
    assert journal.shows_ends(4)
    assert journal.notes == []
    lock.release()


def test_what_a_link_leads_to_stays(
    journal: Journal, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    whole(journal, 2)
    other = elsewhere / "another's"
    journal.path.rename(other)
    journal.path.symlink_to(other)
    held = other.read_bytes()
    whole(journal, 3)
    assert other.read_bytes() == held
    assert journal.shows_ends(3) and not journal.path.is_symlink()
    journal.path.unlink()
    journal.path.symlink_to(elsewhere / "nowhere")
    whole(journal, 3)
    assert not (elsewhere / "nowhere").exists()


def test_trouble_is_said_once_and_mended_by_the_next_opening(journal: Journal) -> None:
    whole(journal, 1)
    journal.configure(4)
    mirror = journal.open()
    moved = journal.path.parent.with_name("moved")
    journal.path.parent.rename(moved)
    mirror.begin("c1")
    mirror.begin("c2")
    (note,) = journal.notes
    assert note.startswith(f"{journal.path} gets no further trials: FileNotFoundError: ")
    moved.rename(journal.path.parent)
    mirror.begin("c3")
    assert list(journal.trials()) == ["c0"], "silent since"
    whole(journal, 4)
    assert journal.shows_ends(4)
    assert len(journal.notes) == 1


def test_trouble_at_the_opening_is_said_once(journal: Journal) -> None:
    journal.path.mkdir()
    journal.configure(1)
    journal.open().begin("c0")
    (note,) = journal.notes
    assert note.startswith(f"{journal.path} gets no further trials: IsADirectoryError: ")
