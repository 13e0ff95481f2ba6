"""Tables and figures of what was run, and of its cost."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.subject import GPU_HOURS, HOURS, Subject
from tune_sentcl.analysis.report.table import Hours, Table, Value
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.schema import LIBRARIES
from tune_sentcl.store.snapshot import STUDY

_PARTS = {
    "startup_seconds": "start-up",
    "train_seconds": "training",
    "evaluation_seconds": "evaluation",
}
_HOUR = 3600.0


def runs(subject: Subject) -> Table:
    """One row per study: its trials by status, and their time."""
    rows = [
        _row(name, manifest, _of(subject, name))
        for name, manifest in subject.frames.manifests.items()
    ]
    columns = (
        *("study", "space", "trials", "finished", "pruned", "failed", "configurations", "seeds"),
        *("began", "elapsed", "trial time", "GPU time", "devices"),
    )
    note = (
        "Elapsed: from the first trial's start to the last one's end. Trial time: the sum over "
        "parallel trials. GPU time counts the share of a GPU that a trial held. Lost and "
        "repeated attempts are not included."
    )
    return Table("runs", "Runs", columns, tuple(rows), note=note)


def parts(subject: Subject) -> Table | None:
    """The parts of the trials' time; None if no trial has times."""
    trials = subject.frames.trials
    whole = float(trials["wall_seconds"].sum())
    if not whole:
        return None
    spent = {label: float(trials[name].sum()) for name, label in _PARTS.items()}
    spent["other"] = max(0.0, whole - sum(spent.values()))
    rows = tuple(
        (label, Hours(seconds / _HOUR), f"{100 * seconds / whole:.1f} %")
        for label, seconds in spent.items()
        if seconds >= 0.0005 * whole
    )
    return Table("time", "Where the time went", ("part", "time", "share"), rows)


def elapsed_hours(trials: pd.DataFrame) -> float:
    """From the first trial's start to the last one's end; NaN if unknown."""
    timed = trials[trials["started_at"].notna()]
    if timed.empty:
        return float("nan")
    ends = timed["started_at"] + pd.to_timedelta(timed[HOURS].fillna(0.0), unit="h")
    return float((ends.max() - timed["started_at"].min()).total_seconds()) / _HOUR


def plan(subject: Subject) -> Iterator[Table]:
    """Estimated and actual time of each study's last estimated search."""
    records = {n: m.plan for n, m in subject.frames.manifests.items() if m.plan is not None}
    if not records:
        return
    rows: list[tuple[Value, ...]] = []
    for name, record in records.items():
        planned, actual = record.planned_seconds / _HOUR, record.actual_seconds / _HOUR
        off = f"{100 * (actual / planned - 1):+.0f} %" if planned else None
        rows.append((name, record.trials, Hours(planned), Hours(actual), off))
    columns = ("study", "trials", "planned", "actual", "difference")
    note = "The last search with an estimate, from its first trial's start to the end."
    yield Table("plan", "Plan against actual time", columns, tuple(rows), note=note)


def _of(subject: Subject, name: str) -> pd.DataFrame:
    trials = subject.trials
    return trials[trials[STUDY] == name] if STUDY in trials else trials


def _row(name: str, manifest: Manifest, trials: pd.DataFrame) -> tuple[Value, ...]:
    status = trials["status"].value_counts()
    devices = _devices(trials)
    began = trials["started_at"].min()
    return (
        name,
        manifest.space,
        len(trials),
        *(int(status.get(kind, 0)) for kind in ("finished", "pruned", "failed")),
        int(trials["configuration"].nunique()),
        int(trials["seed"].nunique()),
        "" if pd.isna(began) else f"{began:%Y-%m-%d %H:%M} UTC",
        Hours(elapsed_hours(trials)),
        Hours(float(np.nansum(trials[HOURS]))),
        Hours(float(np.nansum(trials[GPU_HOURS]))),
        devices,
    )


def _devices(trials: pd.DataFrame) -> str:
    named = trials["device"].dropna().value_counts()
    hosts = trials["host"].dropna().nunique()
    devices = ", ".join(map(str, named.index))
    return f"{devices}, {hosts} hosts" if hosts > 1 else devices


_MEASURED = ["suite", "task", "split", "metric", "protocol", "aggregation", "data", "version"]
_USED = {
    **{f"version_{name}": name for name in LIBRARIES},
    "git_commit": "git commit",
    "device": "device",
    "data_source": "training data",
    "data_fingerprint": "fingerprint of the data",
    "checkpoint_fingerprint": "fingerprint of the checkpoint",
}
_SHOWN = 6


def protocols(subject: Subject) -> Table | None:
    """Every kind of score of a whole task, with the number of rows scored."""
    scores = subject.frames.scores
    whole = scores[scores["subset"].isna() & scores["value"].notna()]
    named = {name: whole[name].astype(object).fillna("") for name in ("aggregation", "version")}
    whole = whole.assign(**named)
    if whole.empty:
        return None
    groups = whole.groupby(_MEASURED, sort=False)
    found = groups.agg(rows=("n", "max"), trials=("trial_id", "nunique"), least=("n", "min"))
    found = found.reset_index()
    order = {
        task: rank
        for suite in ("sts", "transfer")
        for rank, task in enumerate(subject.tasks(suite))
    }
    found = found.sort_values(
        ["data", "suite", "protocol", "task", "split", "metric", "aggregation"],
        key=lambda column: (
            column.map(lambda value: (order.get(value, len(order)), value))
            if column.name == "task"
            else column
        ),
        kind="stable",
    )
    shown = [name for name in _MEASURED[1:] if name != "version" or found[name].any()]
    rows: list[tuple[Value, ...]] = []
    for row in found.to_dict("records"):
        least, most = int(row["least"]), int(row["rows"])
        count = f"{least:,} to {most:,}" if least != most else most
        rows.append((*(str(row[name]) for name in shown), count, int(row["trials"])))
    columns = (*shown, "rows", "trials")
    note = (
        "Aggregation of a task with subsets: all joins their pairs, mean averages their scores, "
        "wmean weights the scores by size. Data: root, the files under the data root; toy, "
        "generated sets."
    )
    if "version" in shown:
        note += " Version: the fingerprint of an own task."
    return Table("protocols", "Protocols", columns, tuple(rows), note=note)


def versions(subject: Subject) -> Table:
    """Versions, devices and data of the trials, with the number of trials for each."""
    trials = subject.frames.trials
    rows: list[tuple[Value, ...]] = []
    for column, label in _USED.items():
        found = trials[column].dropna().value_counts()
        if len(found):
            rows.append((label, _listed(found)))
    schemas = pd.Series([m.schema for m in subject.frames.manifests.values()]).value_counts()
    rows.append(("schema of the study", ", ".join(map(str, schemas.index))))
    return Table("versions", "Versions", ("what", "value"), tuple(rows))


def commands(subject: Subject) -> Iterator[tuple[str, str]]:
    """Each study's command lines, with secrets hidden."""
    for name, manifest in subject.frames.manifests.items():
        for command in manifest.commands:
            program, _, arguments = command.partition(" ")
            ours = program.rpartition("/")[2] in ("__main__.py", "tune-sentcl")
            yield name, f"tune-sentcl {arguments}" if ours else command


def _listed(found: "pd.Series[int]") -> str:
    if len(found) == 1:
        return str(found.index[0])
    shown = [f"{value} ({count:,} trials)" for value, count in found.head(_SHOWN).items()]
    rest = len(found) - _SHOWN
    return ", ".join(shown) + (f", and {rest} others" if rest > 0 else "")
