"""One study or several as frames: wide, over seeds, and lazily."""

from pathlib import Path
from typing import Any

import pytest
from analysis_samples import (
    DEV,
    PEARSON,
    SICK,
    Trial,
    config,
    objectives,
    score,
    summaries_of,
    write_study,
)

from tune_sentcl.analysis import read_study
from tune_sentcl.errors import ConfigError, DamagedError, ObjectiveError, StudyError

(MR,) = objectives("MR:accuracy:test:senteval-10fold")
(STS12,) = objectives("STS12:spearman")


def trials(prefix: str, *values: float, **changes: Any) -> list[Trial]:
    """A seed each."""
    return [
        Trial(f"{prefix}{seed}", config(seed, **changes), [score(DEV, value), score(SICK, value)])
        for seed, value in enumerate(values)
    ]


def test_one_row_a_trial_with_scores_as_columns(tmp_path: Path) -> None:
    scores = [score(STS12, 70.0), score(DEV, 80.0), score(PEARSON, 81.0), score(MR, None)]
    scores += [score(STS12, 1.0, aggregation="mean")]
    scores += [score(STS12, 3.0, aggregation=None, subset="part")]
    seeds = [score(MR, value, classifier_seed=seed) for seed, value in ((1, 60.0), (2, 63.0))]
    made = [
        Trial("t1", config(0), scores),
        Trial("t2", config(1, "sbert"), [score(DEV, float("nan")), *seeds]),
        Trial("t3", config(2), status="failed"),
    ]
    write_study(tmp_path, made)
    frames = read_study(tmp_path)
    table = frames.wide()
    assert list(table.columns) == [
        *("trial_id", "configuration", "origin", "status", "method.name", "seed", "data"),
        *("STS12:spearman:test", "STS-B:pearson:dev", "STS-B:spearman:dev"),
        "MR:accuracy:test:senteval-10fold",
    ]
    found = table.set_index("trial_id").iloc[:, 6:].fillna(-1.0).to_dict("index")
    assert [list(found[name].values()) for name in ("t1", "t2", "t3")] == [
        [70.0, 81.0, 80.0, -1.0],
        [-1.0, -1.0, -1.0, 61.5],
        [-1.0, -1.0, -1.0, -1.0],
    ]
    # Whole numbers stay whole beside nulls.
    assert str(frames.trials["data.limit"].dtype) == "Int64"
    assert list(frames.wide(suite="transfer").columns[7:]) == ["MR:accuracy:test:senteval-10fold"]
    assert list(frames.wide("sts", "cosine").columns[7:]) == list(table.columns[7:10])
    for asked in ({"suite": "own"}, {"protocol": "relatedness"}):
        with pytest.raises(ConfigError, match=r"has (cosine|sts), (senteval|transfer)"):
            frames.wide(**asked)


def test_seeds_of_several_studies_count_together(tmp_path: Path) -> None:
    write_study(tmp_path / "a", trials("a", 70.0, 72.0), ["STS-B:spearman"])
    made = [("b", 2, 74.0), ("t", 3, 72.0)]
    write_study(
        tmp_path / "b",
        [Trial(name, config(seed), [score(DEV, value)]) for name, seed, value in made],
        ["STS-B:spearman:dev"],
    )
    frames = read_study([tmp_path / "a", str(tmp_path / "b")])
    table = frames.configurations()
    assert table[["data", "objective_mean", "objective_n"]].to_numpy().tolist() == [
        ["root", 72.0, 4]
    ]
    assert table["objective_sd"][0] == pytest.approx((8 / 3) ** 0.5)
    studies = [str(tmp_path / "a")] * 2 + [str(tmp_path / "b")] * 2
    for frame in (frames.trials, frames.wide()):
        assert list(frame["study"]) == studies and frame.columns[0] == "study"
    assert set(frames.scores["study"]) == set(frames.curves["study"]) == set(studies)
    assert "study" not in read_study(tmp_path / "a").trials
    assert "study" in read_study([tmp_path / "a"]).trials
    write_study(tmp_path / "c", [], ["SICK-R:spearman"])
    three = read_study([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    with pytest.raises(ObjectiveError, match="maximized different scores"):
        three.configurations()
    assert list(three.configurations(["STS-B:spearman"])["objective_n"]) == [4]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for path in (a, b):
        write_study(path, trials(path.name, 70.0, 71.0))
    (b / "trials" / "000001.parquet").write_bytes(b"PAR1")
    for asked in ([a, b], b):
        with pytest.raises(DamagedError, match=r"b/trials/000001\.parquet"):
            read_study(asked)
    with pytest.raises(StudyError, match="must be a study"):
        read_study([a, tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="a study to read"):
        read_study([])


def test_an_empty_study_has_everything_empty(tmp_path: Path) -> None:
    study = write_study(tmp_path, [])
    for frames in (read_study(tmp_path), read_study([tmp_path, tmp_path])):
        assert len(frames.trials) == len(frames.scores) == len(frames.curves) == 0
        assert len(frames.wide()) == len(frames.configurations()) == 0
    assert [len(table) for table in summaries_of(study, [DEV, PEARSON])] == [0, 0]
