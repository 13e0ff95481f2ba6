"""What the tests of the store write: a space, rows, scores and curves with known values."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tune_sentcl.config import TrialConfig, parse_config
from tune_sentcl.score import Score
from tune_sentcl.space import Space
from tune_sentcl.store import CurvePoint, Study, StudyDriver, TrialFiles, TrialRow

COMMAND = ["tune-sentcl", "run", "tiny"]
TABLES = ("trials", "scores", "curves")
SHOWN = ("trial_id", "configuration", "status", "attempt", "objective_name", "error_type")
Status = Literal["finished", "pruned", "failed"]


def space(name: str = "tiny", text: str = 'name = "tiny"\n') -> Space:
    return Space(name, "", (), "", (scl(),), {}, (), (0,), text, "tiny.toml")


def scl(seed: int = 0, **method: Any) -> TrialConfig:
    values = {"method": {"name": "scl", "num_positives": 3, **method}, "seed": seed}
    return parse_config(values, "test")


def row(
    trial_id: str,
    status: Status = "finished",
    *,
    config: TrialConfig | None = None,
    attempt: int = 1,
    objective: float | None = 80.5,
) -> TrialRow:
    return TrialRow(
        config or scl(),
        trial_id=trial_id,
        configuration="c0",
        space="tiny",
        origin="grid",
        status=status,
        steps=10,
        started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        wall_seconds=1.5,
        gpus=0.5,
        versions={"python": "3.11.0"},
        objectives=(("STS-B:spearman:dev", None if status == "failed" else objective),),
        error_type="NonFiniteError" if status == "failed" else None,
        attempt=attempt,
    )


def scores(value: float = 70.0, count: int = 2) -> list[Score]:
    return [
        Score("sts", f"STS1{i + 2}", "test", "spearman", "cosine", "toy", value, 9)
        for i in range(count)
    ]


def points(value: float = 0.5, count: int = 3) -> list[CurvePoint]:
    return [CurvePoint(i, i / count, 8 * i, "loss", value) for i in range(count)]


def opened(path: Any, **changes: Any) -> StudyDriver:
    return StudyDriver.open(path, **{"space": space(), "command": COMMAND, **changes})


def end(
    driver: StudyDriver,
    trial_id: str,
    status: Status = "finished",
    value: float = 70.0,
    weights: str = "",
    **changes: Any,
) -> str:
    """Run an attempt at a trial, and commit it; returns its label."""
    label = driver.next_attempt_label(trial_id)
    if weights:
        weigh(driver, trial_id, label, weights)
    made = replace(row(trial_id, status, **changes), attempt_files=label)
    driver.commit(made, scores(value) if status == "finished" else (), points(value))
    return label


def finish(driver: StudyDriver, trial_id: str, value: float = 70.0) -> None:
    end(driver, trial_id, "finished", value)


def weigh(driver: StudyDriver, trial_id: str, label: str, text: str) -> None:
    """Write weights as a worker does."""
    files = TrialFiles(driver.study.files.where, label)
    files.write_checkpoint(trial_id, lambda folder: _fill(folder, text))


def _fill(folder: Path, text: str) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(text)


def weights(study: Study, trial_id: str) -> str:
    with study.checkpoint(trial_id) as folder:
        assert (folder / "1_Pooling" / "config.json").read_text() == "{}"
        return (folder / "model.safetensors").read_text()


def tables(study: Study) -> dict[str, list[dict[str, Any]]]:
    """What a reader sees of a study, in an order of its own."""
    read = {"scores": study.scores().to_pylist(), "curves": study.curves().to_pylist()}
    read["trials"] = study.trials(SHOWN).to_pylist()
    return {
        name: sorted(rows, key=lambda row: sorted(map(str, row.items())))
        for name, rows in read.items()
    }


def seen(place: Any, **values: float) -> None:
    """A reader sees each finished trial once, with these scores and curves."""
    study = Study.read(place)
    ended = study.ended()
    assert {n for n, known in ended.items() if known.status == "finished"} == set(values)
    found = [(s["trial_id"], s["value"]) for s in study.scores().to_pylist()]
    assert sorted(found) == sorted((n, v) for n, v in values.items() for _ in range(2))
    drawn = [
        (p["trial_id"], p["value"]) for p in study.curves().to_pylist() if p["trial_id"] in values
    ]
    assert sorted(drawn) == sorted((n, v) for n, v in values.items() for _ in range(3))


def own_folders(folder: Path) -> list[str]:
    """The names of hidden files, without the leases."""
    return [p.name for p in folder.rglob(".*") if p.name != ".lease"]
