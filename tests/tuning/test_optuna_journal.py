"""The journal for optuna-dashboard, read back by plain Optuna."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState
from planted_spaces import choice, space_of

from tune_sentcl.space import Range
from tune_sentcl.tuning.sampler.optuna_journal import JournalMirror
from tune_sentcl.tuning.sampler.sampling import frozen_trial

ReportedTrials = list[tuple[str, FrozenTrial]]
RANGES = (
    choice("method.name", "sbert", "scl"),
    Range("method.lambda", "float", 0.0, 1.0),
    choice("method.num_positives", 1, "all"),
)
STATES = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def trial(index: int, *, shift: float = 0.0, ranges: Sequence[Range] = RANGES) -> FrozenTrial:
    state = STATES[index % 3]
    place = {
        "method.name": "scl" if index % 2 else "sbert",
        "method.lambda": 1 / (index + 1),
        "method.num_positives": (1, "all")[index % 4 > 1],
    }
    values = [index + shift] if state == TrialState.COMPLETE else None
    curve = {5: 0.1 + shift, 10: 0.2} if state == TrialState.PRUNED else {}
    found = frozen_trial(space_of(*ranges), place, state, values, curve, {"seeds": 2})
    assert found is not None
    return found


def reported(count: int, **how: Any) -> ReportedTrials:
    return [(f"c{index}", trial(index, **how)) for index in range(count)]


@dataclass
class Journal:
    """A journal's file, the mirrors that are opened on it, and what they say."""

    path: Path
    notes: list[str] = field(default_factory=list)

    def open(
        self,
        reported: ReportedTrials,
        name: str = "tiny",
        objectives: Sequence[str] = ("dev",),
        waiting: Sequence[str] = (),
    ) -> JournalMirror:
        return JournalMirror(self.path, name, objectives, reported, self.notes.append, waiting)

    def study(self, name: str = "tiny") -> optuna.Study:
        storage = JournalStorage(JournalFileBackend(str(self.path)))
        return optuna.load_study(study_name=name, storage=storage)

    def shows(self, reported: ReportedTrials) -> bool:
        """Whether plain Optuna finds exactly what is told, in this order."""
        trials = self.study().get_trials()
        assert [t.number for t in trials] == list(range(len(trials)))
        return [facts(t.user_attrs["configuration"], t) for t in trials] == [
            facts(*one) for one in reported
        ]


def facts(configuration: str, trial: FrozenTrial) -> tuple[Any, ...]:
    return (
        configuration,
        trial.state,
        trial.values,
        trial.params,
        trial.distributions,
        trial.intermediate_values,
        trial.user_attrs["seeds"],
    )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = Journal(tmp_path / "optuna.journal")
    yield found
    assert sorted(p.name for p in tmp_path.iterdir()) == ["optuna.journal"]


def test_optuna_reads_what_is_told(journal: Journal) -> None:
    everything = reported(7)
    mirror = journal.open(everything[:4])
    assert journal.shows(everything[:4])
    for configuration, one in everything[4:]:
        mirror.add(configuration, one)
    assert journal.shows(everything)
    assert journal.study().metric_names == ["dev"]
    assert journal.study().best_value == 6.0
    assert journal.notes == []


def begun(one: FrozenTrial) -> FrozenTrial:
    """The same while it runs."""
    return optuna.trial.create_trial(
        state=TrialState.RUNNING,
        params=one.params,
        distributions=one.distributions,
        user_attrs=one.user_attrs,
    )


def test_what_is_under_way_is_shown_and_ends_in_any_order(journal: Journal) -> None:
    everything = reported(7)
    mirror = journal.open(everything[:1])
    for configuration, one in everything[1:]:
        mirror.begin(configuration, begun(one))
        mirror.begin(configuration, begun(one))
    states = [t.state for t in journal.study().get_trials()]
    assert states == [TrialState.COMPLETE, *[TrialState.RUNNING] * 6]
    for configuration, one in everything[:0:-1]:
        mirror.add(configuration, one)
    mirror.begin("hidden", None)
    assert journal.shows(everything)
    before = journal.path.read_bytes()
    journal.open(everything)
    assert journal.path.read_bytes() == before


def test_what_was_under_way_goes_on_where_it_will_be_told(journal: Journal) -> None:
    everything = reported(4)
    mirror = journal.open(everything[:1])
    for configuration, one in everything[1:]:
        mirror.begin(configuration, begun(one))
    before = journal.path.read_bytes()
    mirror = journal.open(everything[:2], waiting=["c2", "c3"])
    mirror.begin("c3", begun(everything[3][1]))
    for told_one in everything[2:]:
        mirror.add(*told_one)
    assert journal.path.read_bytes().startswith(before)
    assert journal.shows(everything)


def test_what_was_under_way_and_will_not_be_told_goes(journal: Journal) -> None:
    everything = reported(4)
    mirror = journal.open(everything[:1])
    for configuration, one in everything[1:]:
        mirror.begin(configuration, begun(one))
    journal.open(everything[:2], waiting=["c2"]).add(*everything[2])
    assert journal.shows(everything[:3])


def test_several_objectives_have_their_names_and_directions(journal: Journal) -> None:
    one = optuna.trial.create_trial(values=[1.0, 2.0], user_attrs={"seeds": 1})
    journal.open([("a", one)], objectives=("sts", "transfer")).add("b", one)
    assert journal.study().metric_names == ["sts", "transfer"]
    assert journal.study().directions == [optuna.study.StudyDirection.MAXIMIZE] * 2
    assert journal.shows([("a", one), ("b", one)])


def test_a_trial_is_shown_without_the_sampler_s_notes_and_not_changed(journal: Journal) -> None:
    one = trial(0)
    one.system_attrs = {"fixed_params": {"method.name": "scl"}}
    before = copy.deepcopy(one)
    journal.open([]).add("c0", one)
    assert one == before
    assert journal.study().trials[0].system_attrs == {}


@pytest.mark.parametrize("held", [0, 1, 5])
def test_a_journal_is_continued_whatever_the_order_of_what_is_told(
    journal: Journal, held: int
) -> None:
    everything = reported(6)
    journal.open(everything[:held])
    before = journal.path.read_bytes()
    journal.open(everything[::-1])
    assert journal.path.read_bytes().startswith(before)
    assert journal.shows(everything[:held] + everything[held:][::-1])


def storage(journal: Journal) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(journal.path)))


def extended(journal: Journal, more: Callable[[Journal], object]) -> None:
    journal.open(reported(3))
    more(journal)


WIDER = (*RANGES[:2], choice("method.num_positives", 1, "all", 2))
DIFFERENT: dict[str, Callable[[Journal], object]] = {
    "another objective": lambda j: j.open(reported(3), objectives=("test",)),
    "more objectives": lambda j: j.open([], objectives=("dev", "test")),
    "another name": lambda j: j.open(reported(3), name="other"),
    "other values": lambda j: j.open(reported(3, shift=0.5)),
    "other ranges": lambda j: j.open(reported(3, ranges=WIDER)),
    "a configuration not told": lambda j: j.open([*reported(3), ("gone", trial(3))]),
    "a configuration twice": lambda j: j.open(reported(3)).add("c0", trial(0)),
    "no configuration": lambda j: extended(j, lambda j: j.study().add_trial(trial(0))),
    "a deleted study": lambda j: extended(
        j, lambda j: optuna.delete_study(study_name="tiny", storage=storage(j))
    ),
    "nothing": lambda j: j.path.write_bytes(b""),
    "no journal": lambda j: j.path.write_bytes(b"hello\n\xff\n[]\n"),
}


@pytest.mark.parametrize("difference", DIFFERENT)
def test_a_journal_that_holds_anything_else_is_written_anew(
    journal: Journal, difference: str
) -> None:
    DIFFERENT[difference](journal)
    journal.open(reported(3))
    assert journal.shows(reported(3))
    assert journal.notes == []


def test_a_journal_cut_anywhere_is_whole_after_the_next_opening(journal: Journal) -> None:
    mirror = journal.open(reported(1))
    mirror.begin("c1", begun(trial(1)))
    mirror.add("c1", trial(1))
    whole = journal.path.read_bytes()
    for length in range(0, len(whole), 7):  # also within what began and ended
        journal.path.write_bytes(whole[:length])
        journal.open(reported(3))
        assert journal.shows(reported(3)), f"cut after {length} bytes"
    assert journal.notes == []


def test_a_lock_that_a_killed_dashboard_left_stops_nothing(journal: Journal) -> None:
    mirror = journal.open(reported(2))
    lock = JournalFileSymlinkLock(str(journal.path))
    assert lock.acquire()
    mirror.add(*reported(3)[2])
    journal.open(reported(4))
    assert journal.shows(reported(4))
    assert journal.notes == []
    lock.release()


def test_what_a_link_leads_to_stays(
    journal: Journal, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    journal.open(reported(2))
    other = elsewhere / "another's"
    journal.path.rename(other)
    journal.path.symlink_to(other)
    held = other.read_bytes()
    journal.open(reported(3))
    assert other.read_bytes() == held
    assert journal.shows(reported(3)) and not journal.path.is_symlink()
    journal.path.unlink()
    journal.path.symlink_to(elsewhere / "nowhere")
    journal.open(reported(3))
    assert not (elsewhere / "nowhere").exists()


def test_what_a_dashboard_noted_stays(journal: Journal) -> None:
    journal.open(reported(2))
    journal.study().set_user_attr("note", "look at c1")
    journal.open(reported(3))
    assert journal.study().user_attrs == {"note": "look at c1"}
    assert journal.shows(reported(3))


def test_trouble_at_the_opening_is_said_once(tmp_path: Path) -> None:
    notes: list[str] = []
    path = tmp_path / "optuna.journal"
    path.mkdir()
    mirror = JournalMirror(path, "tiny", ["dev"], reported(1), notes.append)
    mirror.add(*reported(2)[1])
    (note,) = notes
    assert note.startswith(f"{path} gets no further trials: IsADirectoryError: ")


def test_trouble_on_the_way_is_said_once_and_mended_by_the_next_opening(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "study" / "optuna.journal")
    journal.path.parent.mkdir()
    mirror = journal.open(reported(1))
    journal.path.parent.rename(tmp_path / "moved")
    for one in reported(3)[1:]:
        mirror.add(*one)
    (note,) = journal.notes
    assert "FileNotFoundError" in note
    (tmp_path / "moved").rename(journal.path.parent)
    mirror.add(*reported(4)[3])
    assert journal.shows(reported(1)), "silent since"
    journal.open(reported(4))
    assert journal.shows(reported(4))
    assert len(journal.notes) == 1


def test_a_trial_that_optuna_cannot_write_ends_nothing(journal: Journal) -> None:
    mirror = journal.open(reported(1))
    odd = trial(0)
    odd.user_attrs = {"seeds": {1, 2}}
    mirror.add("odd", odd)
    mirror.add(*reported(2)[1])
    assert len(journal.notes) == 1
    assert journal.shows(reported(1))
