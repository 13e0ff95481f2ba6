"""The recipes of docs/results.md run as they stand, and their three ways lead to one table."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_samples import DEV, Trial, config, objectives, score, write_study

from tune_sentcl.config import TrialConfig, parse_config
from tune_sentcl.score import Score

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
TASKS = objectives("STS12:spearman", "STS-B:spearman:test", "SICK-R:spearman:test")
RETRIEVAL = objectives("docs:ndcg@10:dev", "docs:ndcg@10:test")
(PEARSON,) = objectives("STS-B:pearson:test")


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return [code for code in found if "mlflow" not in code]


def scl(seed: int, weight: float) -> TrialConfig:
    return parse_config({"method": {"name": "scl", "lambda": weight}, "seed": seed}, "test")


def scores(seed: int, weight: float) -> list[Score]:
    found = [score(task, 70.0 + 10 * weight + seed * n) for n, task in enumerate(TASKS, 1)]
    noise = [score(TASKS[0], 1.0, aggregation="mean"), score(PEARSON, 2.0)]
    own = [score(one, 50.0 + seed) for one in RETRIEVAL]
    return [*found, *noise, *own, score(DEV, 80.0 + seed)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two studies of a grid of two lambdas and of a baseline without one.

    The second has further seeds, and both confirm the second lambda on a confirmation seed.
    """
    for name, seeds in (("lambda", range(3)), ("more", range(2, 4))):
        trials = [
            Trial(f"{part}{seed}", scl(seed, weight), scores(seed, weight), configuration=part)
            for part, weight in (("a", 0.1), ("b", 0.3))
            for seed in seeds
        ]
        baseline = [
            Trial(f"n{seed}", config(seed, "simcse"), scores(seed, 0.0)) for seed in range(2)
        ]
        fresh = Trial("f9", scl(9, 0.3), scores(9, 5.0), configuration="b", origin="confirm")
        trials += [*baseline, fresh]
        write_study(tmp_path / "studies" / name, trials, ["STS-B:spearman"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_blocks_run_and_agree(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    ran = blocks("python")
    for code in ran:
        exec(compile(code, str(PAGE), "exec"), names)
        assert capsys.readouterr().out
    assert len(ran) == 6
    ours = names["by_pandas"]
    for other in (names["by_duckdb"], names["by_polars"].to_pandas()):
        pd.testing.assert_frame_equal(other, ours, check_dtype=False)
    groups = [("scl", 0.1, range(3)), ("scl", 0.3, range(3)), ("simcse", None, range(2))]
    expected = [
        (method, weight, task.task, np.mean(values), np.std(values, ddof=1), len(values))
        for method, weight, seeds in groups
        for n, task in sorted(enumerate(TASKS, 1), key=lambda item: item[1].task)
        for values in [[70.0 + 10 * (weight or 0.0) + seed * n for seed in seeds]]
    ]
    pd.testing.assert_frame_equal(
        ours, pd.DataFrame(expected, columns=ours.columns), check_dtype=False
    )
    assert names["best"]["origin"] == "grid"
    over_seeds = names["both"].configurations().set_index("configuration")
    # Confirmation seeds stand apart.
    assert over_seeds["objective_n"].to_dict() == {"a": 4, "b": 4, "simcse": 2}
    assert over_seeds["confirm_n"].to_dict() == {"a": 0, "b": 1, "simcse": 0}
