"""A search by the local launcher as a caller asks for it, and what its trials leave in a study."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from search_samples import (
    assigned,
    checkpoints,
    lambda_space,
    mirrored,
    numbers,
    objectives,
    rows,
    run_here,
    run_planted,
    temporary_files,
    tiny_space,
)

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import CheckpointError, ConfigError
from tune_sentcl.launch import search
from tune_sentcl.space import load_space
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.rows import TrialRow
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader, Progress
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.plan import make_plan
from tune_sentcl.tuning.worker import Attempt, WorkerSettings
from tune_sentcl.watch.watcher import Watcher

LOCAL = SearchOptions(launcher="local", gpus_per_trial=0.0)


def test_a_loaded_space_takes_overrides_as_a_name_does(tmp_path: Path) -> None:
    settings = {"data.limit": 64, "method.lambda": 0.25}
    search("smoke", tmp_path / "name", overrides=settings, options=LOCAL)
    loaded = load_space("smoke", {"data.limit": 32})
    search(loaded, tmp_path / "space", overrides=settings, options=LOCAL)
    assert objectives(tmp_path / "name") == objectives(tmp_path / "space") != {}
    with pytest.raises(ConfigError, match="no_such"):
        search(loaded, tmp_path / "none", overrides={"method.no_such": 1}, options=LOCAL)
    assert not (tmp_path / "none").exists()


class Listener(Watcher):
    """Keeps the names of the events that it gets."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def begin(self, done: int, total: int) -> None:
        self.events.append(f"begin {done} {total}")

    def ended(self, row: TrialRow, total: int, last: Progress | None) -> None:
        self.events.append(f"ended {row.status}")

    def say(self, text: str) -> None:
        self.events.append(text)


def test_a_library_call_prints_nothing_and_loses_no_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    listener, note = Listener(), "evaluation.every = 9 is more than the 4 steps of a trial"
    settings = {"data.limit": 64, "evaluation.every": 9, "method.lambda": 0.25}
    options = replace(LOCAL, confirm=1)
    with caplog.at_level("INFO", "tune_sentcl"):
        outcome = search(
            "smoke", tmp_path / "study", overrides=settings, options=options, watcher=listener
        )
    assert capfd.readouterr() == ("", "")
    assert [text for text in outcome.notes if text.startswith(note)]
    assert [text for text in listener.events if text in outcome.notes] == list(outcome.notes)
    assert caplog.messages == list(outcome.notes)
    kinds = [text for text in listener.events if text not in outcome.notes]
    assert kinds == 2 * ["begin 0 1", "ended finished"], "the confirmation is a search of its own"
    search("smoke", tmp_path / "study", overrides=settings, options=LOCAL, progress=True)
    assert note in capfd.readouterr().err


def test_trap_sampled_data_that_cannot_be_read_is_noted_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = tmp_path / "away.csv"
    ranges = f'data.source = {{ choices = ["toy", {json.dumps(str(away))}] }}\n'
    ranges += "method.lambda = { choices = [0.1, 0.3, 0.5] }"
    fixed, study = 'evaluation.data = "toy"', tmp_path / "study"
    space = lambda_space(tmp_path / "space", 0.3, ranges=ranges, fixed=fixed)
    outcome, _ = run_planted(space, study, samples=9, sampler="random")
    # Of six points one is the grid's, and three have data that is not there.
    assert (outcome.ran, outcome.failures, outcome.exhausted) == (3, 0, True)
    shown = capsys.readouterr().err
    assert shown.count("a sampled configuration is left out, because it cannot be read") == 1
    assert shown.count("away.csv") == 1
    lines = [f"a man plays {i},someone plays {i},{i % 3}" for i in range(48)]
    away.write_text("\n".join(["premise,hypothesis,label", *lines]) + "\n")
    outcome, _ = run_planted(space, study, samples=9, sampler="random")
    assert (outcome.ran, outcome.failures) == (3, 0), "once it is there, it is drawn"


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"method.dims": [64, 16]}, r"method\.dims: 64: this encoder.s embeddings have width 32"),
        (
            {"encoder.freeze_layers": 2},
            r"encoder\.freeze_layers: 2: must leave at least one of the encoder's 2 layers",
        ),
    ],
)
def test_what_the_encoder_has_not_is_refused_before_a_study_is_there(
    settings: dict[str, Any], rule: str, tmp_path: Path
) -> None:
    space = load_space("smoke", {"method.name": "cosent", **settings})
    with pytest.raises(CheckpointError, match=rule):
        search(space, tmp_path / "study", options=LOCAL)
    assert not (tmp_path / "study").exists()


def test_each_trial_commits_one_row_with_its_scores(tmp_path: Path) -> None:
    """Real training, of a shipped space."""
    planned = make_plan(load_space("smoke"), None, None, (0,), SearchOptions(launcher="local"))
    outcome = run_here("smoke", tmp_path, samples=1, seeds=(0, 1))
    assert (outcome.trials, outcome.ran, outcome.failures) == (6, 6, 0)
    trials = rows(tmp_path)
    assert {row["status"] for row in planned.rows()} == {"to run"}
    assert {row["trial_id"] for row in planned.rows()} == {
        row["trial_id"] for row in trials if row["origin"] == "grid" and row["seed"] == 0
    }
    assert sorted((row["origin"], row["seed"]) for row in trials) == [
        *[("grid", 0)] * 2,
        *[("grid", 1)] * 2,
        *[("sampler", 0), ("sampler", 1)],
    ]
    same = {(r["status"], r["attempt"], r["error_type"], r["steps"]) for r in trials}
    assert same == {("finished", 1, None, 12)}
    scored, values = numbers(tmp_path), objectives(tmp_path)
    for trial_id, objective in values.items():
        assert scored[trial_id, "STS-B", "dev", None, "spearman", None] == objective
    assert {key[0] for key in scored} == values.keys()
    assert checkpoints(tmp_path) == {max(values, key=lambda name: values[name])}
    assert temporary_files(tmp_path) == []
    for row in trials:  # the config in a row gives the same trial again
        config = TrialConfig.model_validate_json(row["config"])
        assert InputLoader(None).load(config).trial_id(config) == row["trial_id"]


def test_trap_nan_is_a_failure_with_its_text_and_never_0(tmp_path: Path) -> None:
    """Real training: a rate blows every weight up."""
    space = tiny_space(
        tmp_path / "space",
        "grid.optimizer.lr = [1e-3, 1e30]\n",
        ranges="optimizer.lr = { low = 1e-4, high = 1e30, log = true }",
    )
    study = tmp_path / "study"
    outcome = run_here(space.with_overrides({"optimizer.precision": "bf16"}), study)
    assert (outcome.ran, outcome.failures) == (2, 1)
    (failed,) = [row for row in rows(study) if row["status"] == "failed"]
    assert (failed["optimizer.lr"], failed["error_type"]) == (1e30, "NonFiniteError")
    assert failed["error_text"] and failed["objective"] is None
    assert failed["steps"] > 0 and failed["precision_used"] == "bf16"
    assert failed["trial_id"] not in {key[0] for key in numbers(study)}
    states = {t.params["optimizer.lr"]: (t.state, t.values is None) for t in mirrored(study)}
    assert states == {1e30: (TrialState.FAIL, True), 1e-3: (TrialState.COMPLETE, False)}
    assert failed["trial_id"] not in checkpoints(study)


def test_nothing_of_a_trial_is_left_to_do_after_its_last_report(tmp_path: Path) -> None:
    """Real training. Weights without a row, as of a killed driver, count as nothing."""
    space = lambda_space(tmp_path / "space", 0.3, fixed="evaluation.every = 1")
    study, loader = tmp_path / "study", InputLoader(None)
    (config,) = space.configurations
    StudyDriver.open(study, space=space, command=["test"]).close()
    points = []
    settings = WorkerSettings(str(study), True, 1, 0.0)
    with closing(Attempt(assigned(config, loader), loader, settings).points()) as trial:
        for progress in trial:
            points.append(progress)
            if progress.final:
                break
            assert not (study / "checkpoints").exists()
    assert [(p.step, p.final) for p in points] == [(1, False), (2, True)]
    assert len(points[-1].scores) > 0
    (left,) = (study / "checkpoints").iterdir()
    assert (left / "model.safetensors").is_file()
    assert (rows(study), Study.read(study).checkpoints()) == ([], set())
    assert run_planted(space, study)[0].ran == 1
