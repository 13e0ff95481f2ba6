"""The frames and the two summaries, on studies whose numbers are known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from tune_sentcl.analysis import configurations, read_study, summary
from tune_sentcl.analysis.summary import STS_TASKS, SUBSET_TASKS
from tune_sentcl.config import EncoderConfig, TrialConfig, parse_config
from tune_sentcl.errors import StudyError
from tune_sentcl.space import Space
from tune_sentcl.store import CurvePoint, Score, Study, TrialRow

Data = Literal["toy", "root"]


def _config(seed: int, name: str = "scl") -> TrialConfig:
    return parse_config({"method": {"name": name}, "seed": seed}, "test")


def _scores(values: Sequence[float], data: Data = "root") -> list[Score]:
    """One test Spearman a task; beside it what must never be averaged in."""
    found = []
    for task, value in zip(STS_TASKS, values, strict=False):
        subsets = task in SUBSET_TASKS
        whole = Score(
            "sts",
            task,
            "test",
            "spearman",
            "cosine",
            data,
            value,
            9,
            aggregation="all" if subsets else None,
        )
        noise = [
            Score("sts", task, "dev", "spearman", "cosine", data, -1.0, 9),
            Score("sts", task, "test", "pearson", "cosine", data, -2.0, 9),
            Score("sts", task, "test", "spearman", "relatedness", data, -3.0, 9),
        ]
        if subsets:
            noise += [
                Score(
                    "sts", task, "test", "spearman", "cosine", data, -4.0, 9, aggregation="mean"
                ),
                Score("sts", task, "test", "spearman", "cosine", data, -5.0, 9, subset="part"),
            ]
        found += [whole, *noise]
    return found


def _study(path: Path) -> Study:
    space = Space("tiny", "", (), "", (_config(0),), {}, (), (0,), "", "tiny.toml")
    return Study.open(path, space=space, command=["x"])


def _end(
    study: Study,
    trial_id: str,
    scores: Sequence[Score],
    *,
    config: TrialConfig,
    objective: float | None,
    status: Literal["finished", "pruned", "failed"] = "finished",
) -> None:
    study.write_scores(trial_id, scores)
    study.write_curves(trial_id, [CurvePoint(1, 0.5, 8, "loss", 1.0)])
    study.commit(
        TrialRow(
            config,
            trial_id=trial_id,
            configuration=config.method.name,
            space="tiny",
            origin="grid",
            status=status,
            wall_seconds=2.0,
            objective=objective,
        )
    )


def test_trials_are_ranked_and_no_average_hides_a_missing_task(tmp_path: Path) -> None:
    whole = [70.0, 71.0, 72.0, 73.0, 74.0, 75.0, 76.0]
    with _study(tmp_path) as study:
        _end(study, "t1", _scores(whole), config=_config(0), objective=80.0)
        _end(study, "t2", _scores(whole[:6]), config=_config(1), objective=90.0)
        _end(study, "t3", [], config=_config(2), objective=99.0, status="failed")
        _end(study, "t4", [], config=_config(3), objective=85.0, status="pruned")
        _end(study, "t5", _scores([60.0] * 7), config=_config(0, "sbert"), objective=None)
        study.compact()
    table = summary(read_study(tmp_path))
    assert list(table["trial_id"]) == ["t2", "t4", "t1", "t5", "t3"]
    average = table.set_index("trial_id")["sts_avg"]
    assert average["t1"] == pytest.approx(73.0)
    assert average["t5"] == pytest.approx(60.0)
    assert average[["t2", "t3", "t4"]].isna().all()
    first = table.set_index("trial_id").loc["t1"]
    assert first["method.name"] == "scl"
    assert first["seconds"] == 2.0
    assert list(table.columns) == [
        *("trial_id", "origin", "status", "method.name"),
        *("seed", "objective", "sts_avg", "data", "seconds"),
    ]


def test_the_knobs_in_which_trials_differ_are_columns(tmp_path: Path) -> None:
    with _study(tmp_path) as study:
        _end(study, "t1", [], config=_config(0), objective=1.0)
        _end(study, "t2", [], config=_config(1, "sbert"), objective=2.0)
        other = _config(0).model_copy(update={"encoder": EncoderConfig(pooling="cls")})
        _end(study, "t3", [], config=other, objective=3.0)
    table = summary(read_study(tmp_path))
    assert list(table["encoder.pooling"]) == ["cls", "mean_without_cls", "mean_without_cls"]
    assert "method.lambda" not in table  # a knob that a method lacks is no difference
    assert "encoder.pooling" in configurations(read_study(tmp_path))


def test_a_nan_is_a_missing_score(tmp_path: Path) -> None:
    with _study(tmp_path) as study:
        _end(study, "t1", _scores([70.0] * 6 + [float("nan")]), config=_config(0), objective=1.0)
    assert summary(read_study(tmp_path))["sts_avg"].isna().all()


def test_real_scores_win_over_toy_ones_and_are_never_mixed(tmp_path: Path) -> None:
    both = _scores([50.0] * 7, "toy") + _scores([60.0] * 7, "root")
    part = _scores([50.0] * 7, "toy") + _scores([60.0] * 3, "root")
    with _study(tmp_path) as study:
        _end(study, "t1", both, config=_config(0), objective=3.0)
        _end(study, "t2", part, config=_config(1), objective=2.0)
        _end(study, "t3", _scores([50.0] * 7, "toy"), config=_config(2), objective=1.0)
    frames = read_study(tmp_path)
    table = summary(frames)
    assert list(table["data"]) == ["root", "root", "toy"]
    assert list(table["sts_avg"].fillna(-1.0)) == [60.0, -1.0, 50.0]
    assert list(configurations(frames)["data"]) == ["root", "toy"]


def test_configurations_are_means_over_their_finished_seeds(tmp_path: Path) -> None:
    with _study(tmp_path) as study:
        for seed, value in enumerate((70.0, 72.0, 74.0)):
            _end(study, f"a{seed}", _scores([value] * 7), config=_config(seed), objective=value)
        _end(study, "a3", [], config=_config(3), objective=1.0, status="pruned")
        _end(study, "b0", _scores([9.0] * 7), config=_config(0, "sbert"), objective=90.0)
    table = configurations(read_study(tmp_path))
    assert list(table["configuration"]) == ["sbert", "scl"]
    scl = table.iloc[1]
    assert (scl["objective_mean"], scl["objective_sd"], scl["objective_n"]) == (72.0, 2.0, 3)
    assert (scl["sts_avg_mean"], scl["sts_avg_n"]) == (pytest.approx(72.0), 3)
    assert table["objective_sd"].isna()[0]
    assert table.iloc[0]["sts_avg_n"] == 1


def test_an_empty_study_has_empty_tables(tmp_path: Path) -> None:
    _study(tmp_path).close()
    frames = read_study(tmp_path)
    assert len(frames.trials) == len(frames.scores) == len(frames.curves) == 0
    assert len(summary(frames)) == len(configurations(frames)) == 0


def test_frames_keep_whole_numbers_beside_nulls(tmp_path: Path) -> None:
    with _study(tmp_path) as study:
        _end(study, "t1", _scores([1.0]), config=_config(0), objective=1.0)
    frames = read_study(tmp_path)
    assert frames.trials["data.limit"].isna().all()
    assert str(frames.trials["data.limit"].dtype) == "Int64"
    assert len(frames.curves) == 1


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError):
        read_study(tmp_path)
