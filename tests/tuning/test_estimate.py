"""What an estimate counts: kinds, steps, evaluation points, encoding passes, slots."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from search_samples import NoInputs, lambda_space, run_here, tiny_space

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.space import Space
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning import plan
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.plan import (
    Estimate,
    TrialSeconds,
    TrialTimer,
    estimate,
    make_plan,
)
from tune_sentcl.tuning.question import ask, first_training, shortest_training
from tune_sentcl.tuning.queue import read_queue
from tune_sentcl.watch.clock import clock

TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "data.limit": 64}
HERE = SearchOptions(launcher="local", gpus_per_trial=0.0)


def planned(
    space: Space, study: Path | None = None, **asked: Any
) -> tuple[Estimate | None, TrialTimer]:
    """The estimate of a search over a study, or over a new one, and what has timed it."""
    seeds, options = asked.pop("seeds", (0,)), {"launcher": "local", "gpus_per_trial": 0.0}
    question = ask(space, None, seeds, SearchOptions(**{**options, **asked}))
    timer = TrialTimer(question.loader, question.options)
    return estimate(read_queue(question, Study.read(study) if study else None), timer), timer


@pytest.mark.parametrize(("every", "points"), [(0, 0), (1, 4), (3, 2), (4, 1), (5, 1)])
def test_rows_and_points_are_multiplied(
    monkeypatch: pytest.MonkeyPatch, every: int, points: int
) -> None:
    monkeypatch.setattr(plan, "_measure", lambda *_: (5.0, 0.25, 0.01, None))
    loader = InputLoader(None)
    values = {"optimizer.batch_size": 32, "optimizer.epochs": 2, "evaluation.every": every}
    asked = parse_dotted({"method.name": "scl", **TOY, **values}, "test")
    found = TrialTimer(loader, HERE).trial(asked)
    sets = loader.sets(asked)
    (dev,) = (task for task in sets.sts if (task.name, task.split) == ("STS-B", "dev"))
    texts = {text for s in dev.subsets for text in (*s.sentences1, *s.sentences2)}
    point, end = (0.01 * sum(map(len, each)) for each in (texts, set(sets.sentences())))
    whole = 5 + 2 * 64 * 0.25 + points * point + end
    assert found == pytest.approx((5 + point, 2 * 64 * 0.25, end, whole))


def test_one_trial_makes_the_pass_of_a_frozen_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path / "cache"))
    space, study = lambda_space(tmp_path, 0.3), tmp_path / "study"
    space = space.with_overrides({"method.name": "clsr", "data.limit": 32})
    first, timer = planned(space, seeds=(0, 1))
    each = timer.trial(space.configurations[0])
    (encoding,) = timer.passes.values()
    assert first and first.runs == 2 and encoding > 0
    assert first.seconds == pytest.approx(10 + 2 * (each.whole + 0.3) + encoding)
    run_here(space, study, gpus_per_trial=0.0)
    _, again = planned(space, seeds=(0, 1))
    assert list(again.passes.values()) == [0], "it is cached by now"
    assert planned(space, study)[0] is None, "there is nothing to do"


@pytest.mark.parametrize(("method", "compared"), [("none, scl", 2), ("scl", 3)])
def test_a_confirmation_trains_winner_runner_up_and_a_baseline_that_is_not_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, compared: int
) -> None:
    def seconds(_: TrialTimer, config: TrialConfig) -> TrialSeconds:
        return TrialSeconds(0.0, 50.0, 0.0, 50.0 if config.method.takes_steps else 2.0)

    monkeypatch.setattr(TrialTimer, "trial", seconds)
    space = tiny_space(tmp_path, f'grid."method.name" = {json.dumps(method.split(", "))}')
    found, without = (planned(space, confirm=confirm)[0] for confirm in (4, 0))
    assert found and found.confirmation == pytest.approx(10 + compared * 4 * 50.3)
    assert without and without.confirmation == 0
    notes = make_plan(space, None, None, (0,), replace(HERE, confirm=4)).notes
    assert f"and {clock(found.confirmation)} more for --confirm 4" in notes


def test_a_plan_tells_of_the_classifiers_that_it_does_not_count(tmp_path: Path) -> None:
    more = 'evaluation.suites = ["sts", "transfer"]\nevaluation.protocols = ["senteval-5fold"]'
    unused = 'evaluation.protocols = ["cosine", "senteval-5fold"]'  # without the suite transfer
    for number, (fixed, noted) in enumerate(((more, True), ("", False), (unused, False))):
        space = lambda_space(tmp_path / str(number), 0.3, fixed=fixed)
        notes = " ".join(make_plan(space, None, None, None, HERE).notes)
        assert re.search(r"\d:\d\d in all, with 1 at a time on this machine \(about \d+ s", notes)
        assert ("does not include the classifiers" in notes) == noted


def test_a_plan_says_what_cannot_be_timed(tmp_path: Path) -> None:
    # A doubled sentence of this length does not fit the encoder, which shows when it is assembled.
    changes = {"method.name": "conisi", "encoder.max_length": 512, "encoder.train_length": 512}
    space = lambda_space(tmp_path, 0.3).with_overrides(changes)
    notes = make_plan(space, None, None, None, HERE).notes
    (note,) = (text for text in notes if "the time cannot be estimated" in text)
    assert "train_length" in note


def test_a_grid_without_trainings_leaves_the_stages_of_what_is_sampled(tmp_path: Path) -> None:
    ranges = (
        'method.name = { choices = ["none", "scl"] }\noptimizer.epochs = { low = 8, high = 99 }'
    )
    space = tiny_space(tmp_path, 'grid."method.name" = ["none"]', ranges=ranges)
    assert shortest_training(space, NoInputs())[0] == 8 * 2
    assert first_training(space).method.name == "scl"
