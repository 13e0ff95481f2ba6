"""A study whose report has every part, and small ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from analysis_samples import Trial, config, objectives, score, write_study

from tune_sentcl.analysis import read_study
from tune_sentcl.analysis.report.report import report_of
from tune_sentcl.analysis.report.report_data import ReportData
from tune_sentcl.analysis.report.table import Table, written
from tune_sentcl.config import parse_config
from tune_sentcl.score import Score
from tune_sentcl.space import Space, load_space
from tune_sentcl.store import CurvePoint, SearchRecord, Study, StudyDriver, TrialRow

DEV = "STS-B:spearman:dev"
STS = [
    *(one for year in range(12, 17) for one in objectives(f"STS{year}:spearman")),
    *objectives("STS-B:spearman:test", "SICK-R:spearman:test"),
]
TRANSFER = objectives(*(f"{task}:accuracy:test" for task in ("MR", "CR", "SUBJ", "MPQA")))
HOSTILE = "</script><script>alert('lost')</script> <b>& \"loss\" | is_nan \\ 5 % $x$"
"""What an error or a name may say; no format may take it for its own."""


def write_whole_study(path: Path) -> Path:
    """Two methods by lambda, pooling and rate, some pruned and failed, with stages."""
    number = 0
    with StudyDriver.open(path, space=_space(), command=["tune-sentcl", "search"]) as driver:
        for method in ("scl", "simcse"):
            for place, pooling in enumerate(("mean", "cls")):
                for rate in (1e-6, 1e-5, 5e-5, 1e-4):
                    for seed in range(3):
                        number += 1
                        row = _row(number, method, pooling, rate, seed)
                        value = 80.0 - 2 * place + 1e5 * rate + 0.2 * seed
                        driver.commit(row, _scores(value, seed), list(_points(value)))
        for share, method in ((1 / 16, "scl"), (1 / 4, "simcse"), (1 / 64, "scl")):
            number += 1
            driver.commit(_stopped(number, method, share))
        driver.record(SearchRecord((DEV,), "tpe", 0))
    return path


def _space() -> Space:
    return load_space("scl/lambda")


def _row(number: int, method: str, pooling: str, rate: float, seed: int) -> TrialRow:
    status: Literal["finished", "pruned", "failed"] = "finished"
    status = "failed" if number == 5 else "pruned" if number % 11 == 9 else status
    knobs = {"name": method, **({"lambda": rate * 5000} if method == "scl" else {})}
    config = parse_config(
        {
            "method": knobs,
            "encoder": {"pooling": pooling, "checkpoint": "toy" if method == "scl" else HOSTILE},
            "optimizer": {"lr": rate},
            "seed": seed,
        },
        "test",
    )
    finished = status != "pruned" and method == "scl" and seed == 0
    return TrialRow(
        config,
        trial_id=f"trial{number:011}",
        stages=_stages(80.0 - number, 1 / 16, 1 / 4) if finished else None,
        configuration=f"{method}-{pooling}-{rate:g}",
        space="scl/lambda",
        origin="grid",
        status=status,
        steps=10,
        started_at=datetime(2026, 1, 2, 3, tzinfo=UTC) + timedelta(minutes=number),
        wall_seconds=60.0 + number,
        startup_seconds=10.0 + number,
        train_seconds=40.0,
        evaluation_seconds=10.0,
        gpu_seconds=30.0,
        device="NVIDIA H100",
        host="node",
        gpus=0.5,
        error_type="NonFiniteError" if status == "failed" else None,
        error_text=HOSTILE if status == "failed" else None,
    )


def _stopped(number: int, method: str, share: float) -> TrialRow:
    """A configuration that was stopped at the end of a stage."""
    row, name = _row(number, method, "mean", 1e-6 * number, 0), f"stopped-{number}"
    stages = _stages(88.0 - number / 9, share)
    return replace(row, configuration=name, origin="sampler", status="pruned", stages=stages)


def _stages(value: float, *shares: float) -> tuple[dict[str, Any], ...]:
    return tuple({"objective": DEV, "share": share, "value": value + share} for share in shares)


def _scores(value: float, seed: int) -> Iterator[Score]:
    (dev,) = objectives(DEV)
    yield score(dev, value)
    for place, task in enumerate((*STS, *TRANSFER)):
        yield score(task, value + place)
    if seed == 0:
        (missing,) = objectives("TREC:accuracy:test")
        yield score(missing, None, reason="the file is not there")


def _points(value: float) -> Iterator[CurvePoint]:
    for step in range(1, 6):
        for name, number in (("loss", 1 / step), ("STS-B.dev.spearman", value - 9 / step)):
            yield CurvePoint(step, step / 5, 128 * step, name, number)


def write_each(path: Path, cases: Iterable[tuple[float, Mapping[str, Any]]]) -> Path:
    """A study of configurations of one seed: the score and the tables of knobs of each."""
    (dev,) = objectives(DEV)
    trials = [
        Trial(f"t{n}", config(0, **tables), [score(dev, value)], configuration=f"t{n}")
        for n, (value, tables) in enumerate(cases)
    ]
    write_study(path, trials, [DEV])
    return path


def subject_of(*paths: Path, objective: str = "") -> ReportData:
    frames = read_study(paths[0] if len(paths) == 1 else paths)
    study = Study.read(paths[0]) if len(paths) == 1 else None
    return ReportData(frames, frames.objectives([objective] if objective else None), study)


def text_of(*paths: Path, objective: str = "") -> str:
    """What a report says, in lines: headings, and the rows of its tables with their marks."""
    report = report_of(subject_of(*paths, objective=objective), figures=False)
    answer = report.answer
    lines = [f"# {report.title}", answer.sentence, f"winner: {answer.winner}", *answer.notes]
    lines += [f"{one.verdict}: {one.sentence}" for one in answer.judgements]
    lines += [f"next: {step}" for step in answer.steps]
    for section in report.sections:
        lines.append(f"## {section.title}")
        for table in (part for part in section.parts if isinstance(part, Table)):
            lines += [f"### {table.title}", f"| {' | '.join(table.columns)} |"]
            for place, row in enumerate(table.rows):
                mark = {"winner": "*", "worse": "-"}.get(
                    table.marks[place] if table.marks else "", ""
                )
                lines.append(f"| {' | '.join(map(written, row))} |{mark}")
            lines += [table.note]
        lines += section.lines
    return "\n".join(lines)
