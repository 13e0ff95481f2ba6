"""A trial whose worker was lost: it goes on from its state, and nobody can tell by its numbers."""

import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Clock
from trial_samples import LOADER, Kept, drained, finish, killed

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.objective import Objective
from tune_sentcl.trial import FinishedTrial, Output, Progress, run
from tune_sentcl.trial import output as saving
from tune_sentcl.trial.output import StateWriter, TrialState

BASE: dict[str, Any] = {
    "encoder.checkpoint": "toy",
    "encoder.pooling": "mean",
    "encoder.train_length": 32,
    "data.source": "toy",
    "data.limit": 48,
    "optimizer.batch_size": 16,
    "optimizer.epochs": 2,
    "optimizer.lr": 1e-3,
    "evaluation.every": 2,
}
KINDS: dict[str, dict[str, Any]] = {
    "scl": {"method.name": "scl", "method.num_negatives": 2},
    "sgd": {"method.name": "sbert", "optimizer.name": "sgd", "optimizer.lr": 0.1},
    "raw": {
        "method.name": "augment",
        "data.order": "shuffled_groups",
        "optimizer.eps_added": "raw",
    },
    "conisi": {"method.name": "conisi", "method.strategy": "o1", "encoder.pooling": "cls"},
    "lars": {"method.name": "clsr", "optimizer.name": "lars", "optimizer.lr": 0.5},
    "adapters": {
        "method.name": "simcse",
        "encoder.lora_rank": 2,
        "encoder.lora_dropout": 0.2,
        "evaluation.select": "best",
    },
    "layers": {
        "method.name": "cosent",
        "encoder.freeze_layers": 1,
        "encoder.text_prefix": "the man ",
        "evaluation.select": "best",
    },
}
"""What a state may hold: each optimizer, heads, what was drawn, the best weights, parts."""


def config_of(kind: str, **values: Any) -> TrialConfig:
    return parse_dotted({**BASE, **KINDS[kind], **values}, "test")


@pytest.fixture(autouse=True)
def states_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_SHARE", 1.0)


def resumed(kept: Kept) -> tuple[list[Progress], FinishedTrial]:
    return drained(run(kept.config, LOADER.load(kept.config), output=kept.output()))


def record(points: list[Progress], after: int = 0) -> list[tuple[Any, ...]]:
    """What the points behind a step and the end say."""
    seen = (p for p in points if p.step > after or p.final)
    return [(p.step, p.total, p.rows, p.dev, p.scores, p.curves, p.final) for p in seen]


@pytest.mark.parametrize(
    ("kind", "after"), [*((kind, 3) for kind in KINDS if kind != "scl"), ("scl", 1), ("scl", 6)]
)
def test_killed_behind_any_step_it_ends_as_if_nothing_had_happened(
    kind: str, after: int, tmp_path: Path
) -> None:
    config = config_of(kind)
    points, end = finish(config, tmp_path / "whole")
    kept = Kept(tmp_path / "killed", config)
    for lost in (1, after) if kind == "sgd" else (after,):
        killed(kept, lost)
    torch.rand(7)  # another worker's random state is another
    again, ended = resumed(kept)
    assert record(again) == record(points, after)
    weights = end.encoder.state_dict()
    assert all(torch.equal(v, weights[name]) for name, v in ended.encoder.state_dict().items())
    assert f"continued from step {after} of" in again[-1].run_columns["notes"]


@pytest.fixture(scope="module")
def undisturbed() -> list[Progress]:
    return finish(config_of("scl"))[0]


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of a trial that died behind its fourth step, for tests to copy."""
    folder = tmp_path_factory.mktemp("died")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saving, "_SHARE", 1.0)
        killed(Kept(folder, config_of("scl")), 4)
    return folder


@pytest.fixture
def dead(died: Path, tmp_path: Path) -> Kept:
    shutil.copytree(died, tmp_path, dirs_exist_ok=True)
    return Kept(tmp_path, config_of("scl"))


def paused(kept: Kept, until: float, least: float = -math.inf) -> list[Progress]:
    output = replace(kept.output(), until=until, pause_above=least)
    return drained(run(kept.config, LOADER.load(kept.config), output=output))[0]


@pytest.mark.parametrize(
    ("kind", "keeps"),
    [("scl", False), *((kind, True) for kind in ("scl", "raw", "lars", "adapters", "layers"))],
)
def test_paused_twice_it_ends_as_if_nothing_had_happened(
    kind: str, keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pause of most is at an evaluation point, the second between two."""
    monkeypatch.setattr(saving, "_BYTES_PER_SECOND", 1e15 if keeps else 0)
    config = config_of(kind)
    points, _ = finish(config, tmp_path / "whole")
    whole, kept = Kept(tmp_path / "whole", config), Kept(tmp_path / "paused", config)
    behind = 0
    for until in (1 / 4, 1 / 2):
        *before, last = paused(kept, until)
        assert last.step == math.ceil(until * last.total) == max(p.step for p in last.curves)
        assert (last.paused, last.final, last.scores) == (True, False, ())
        assert record(before) == record([p for p in points if p.step <= last.step], behind)
        assert all(last.dev == point.dev for point in points if point.step == last.step)
        behind = last.step if keeps else 0
        torch.rand(7)  # another worker's random state is another
    again, _ = resumed(kept)
    assert record(again) == record(points, behind)
    assert again[-1].run_columns["notes"] == points[-1].run_columns["notes"]
    for file in whole.weights.glob("*.safetensors"):
        assert (kept.weights / file.name).read_bytes() == file.read_bytes()


def test_a_pause_that_was_lost_is_reported_again_without_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "_BYTES_PER_SECOND", 1e15)
    kept = Kept(tmp_path, config_of("scl"))
    *_, first = paused(kept, 1 / 2)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["tune_sentcl.trial.run"], "train", None)
        (again,) = paused(kept, 1 / 2)
    assert record([again]) == record([first]) and again.paused
    *_, anew = paused(kept, 1 / 4)  # which that state is beyond
    assert (anew.step, anew.paused) == (2, True)
    assert "beyond the end of this stage" in anew.run_columns["notes"]


def test_a_state_of_a_whole_training_is_not_scored_as_a_share(
    dead: Kept, undisturbed: list[Progress]
) -> None:
    """A command without stages left it behind the fourth step, and another one has stages."""
    *_, last = paused(dead, 1 / 4)
    assert (last.step, last.dev, last.paused) == (2, undisturbed[0].dev, True)


def test_a_pause_with_a_score_that_is_too_low_leaves_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "_BYTES_PER_SECOND", 1e15)
    kept = Kept(tmp_path, config_of("scl"))
    score = paused(kept, 1 / 4, 100.0)[-1].dev
    assert score is not None and not any((tmp_path / "states").glob("[0-9a-f]*"))
    paused(kept, 1 / 4, score)
    assert any((tmp_path / "states").glob("[0-9a-f]*"))


def test_what_it_cost_before_counts(dead: Kept) -> None:
    spent = json.loads((dead.state / "state.json").read_text())["costs"]
    facts = resumed(dead)[0][-1].run_columns
    for name, value in spent.items():
        assert facts[name] >= value
    assert facts["wall_seconds"] > spent["wall_seconds"] > 0
    assert facts["steps"] == 6


DAMAGED = "started again, because the state of a lost attempt was damaged"
OTHER = "started again, because a lost attempt had other settings"


def _of_a_later_step(kept: Kept, other: Path) -> None:
    """A tool that copies files one by one may mix them."""
    later = Kept(other, kept.config)
    killed(later, 5)
    (later.state / "state.safetensors").replace(kept.state / "state.safetensors")


def _by_another_score(kept: Kept, other: Path) -> None:
    """The weights would be the same; the points would be of two kinds."""
    shutil.rmtree(kept.state)
    killed(kept, 4, Objective("SICK-R", "pearson", "dev", "cosine"))


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda kept, _: (kept.state / "state.json").write_text("{"), DAMAGED),
        (lambda kept, _: (kept.state / "state.json").write_text("{}"), DAMAGED),
        (lambda kept, _: (kept.state / "state.safetensors").write_text("junk"), DAMAGED),
        (lambda kept, _: (kept.state / "state.json").unlink(), DAMAGED),
        (_of_a_later_step, DAMAGED),
        (_by_another_score, OTHER),
    ],
)
def test_from_a_state_that_is_damaged_or_of_other_settings_it_begins_anew(
    change: Callable[[Kept, Path], Any],
    note: str,
    dead: Kept,
    undisturbed: list[Progress],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    change(dead, tmp_path_factory.mktemp("other"))
    points, _ = resumed(dead)
    assert record(points) == record(undisturbed)
    assert note in points[-1].run_columns["notes"]


@dataclass(frozen=True)
class Slow(Output):
    """Takes its seconds to write a state."""

    clock: Clock = Clock()  # noqa: RUF009 - each test makes its own
    takes: float = 0.0

    def save(self, state: TrialState) -> None:
        self.clock.now += self.takes


@pytest.mark.parametrize(("takes", "states"), [(0.1, 100), (1.0, 48), (10.0, 5)])
def test_states_take_no_more_than_a_twentieth_of_the_time_and_short_trainings_leave_none(
    takes: float, states: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    kept, clock = Kept(tmp_path, config_of("scl")), Clock()
    assert not StateWriter(None, clock).due(last=True)
    writer = StateWriter(
        Slow(kept.files, kept.trial_id, save_every=10.0, clock=clock, takes=takes), clock
    )
    clock.now = 9.9
    assert not writer.due(last=True)
    clock.now = 10.0
    assert writer.due(last=False) and writer.due(last=True)
    written = 0
    while clock.now < 1000:
        if writer.due(last=False):
            writer.write(TrialState.__new__(TrialState))
            written += 1
        clock.now += 0.5  # a step
    assert writer.seconds <= 0.051 * clock.now
    assert written == pytest.approx(states, abs=2)
