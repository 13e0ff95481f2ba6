"""Tables of the searches that ran, their cost, their failures, and how they measured."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.report_data import GPU_HOURS, HOURS, ReportData
from tune_sentcl.analysis.report.table import Hours, Row, Table
from tune_sentcl.errors import first_names
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.rows import LIBRARIES
from tune_sentcl.store.study import STUDY

_PARTS = {
    "startup_seconds": "start-up",
    "train_seconds": "training",
    "evaluation_seconds": "evaluation",
}
_HOUR = 3600.0
_ENDS = ("finished", "pruned", "failed")
_NAMED = 5
_MEASURED = ["task", "split", "metric", "protocol", "aggregation", "data", "version"]
_USED = {
    **{f"version_{name}": name for name in LIBRARIES},
    "git_commit": "git commit",
    "device": "device",
    "data_source": "training data",
    "data_fingerprint": "fingerprint of the data",
    "checkpoint_fingerprint": "fingerprint of the checkpoint",
    "code_fingerprint": "fingerprint of the plugin",
}
_SHOWN = 6


def run_tables(subject: ReportData) -> Iterator[Table]:
    """The studies, and where their time went."""
    manifests = subject.frames.manifests
    yield Table(
        "runs",
        "Runs",
        (
            *("study", "space", "trials", *_ENDS, "configurations", "seeds"),
            *("began", "elapsed", "trial time", "GPU time", "devices"),
        ),
        tuple(_run(subject, name, manifest) for name, manifest in manifests.items()),
        "Elapsed: from the start of the first trial to the end of the last. Trial time: the "
        "sum over all trials, which may run in parallel. GPU time: trial time multiplied by "
        "the trial's share of a GPU. Lost and repeated attempts are not included.",
    )
    yield from _times(subject.frames.trials)


def elapsed_hours(trials: pd.DataFrame) -> float:
    """Hours from the first trial's start to the last trial's end; NaN if unknown."""
    timed = trials[trials["started_at"].notna()]
    ends = timed["started_at"] + pd.to_timedelta(timed[HOURS].fillna(0.0), unit="h")
    span = ends.max() - timed["started_at"].min()
    return float("nan") if timed.empty else float(span.total_seconds()) / _HOUR


def _run(subject: ReportData, name: str, manifest: Manifest) -> Row:
    trials = subject.trials
    trials = trials[trials[STUDY] == name] if STUDY in trials else trials
    began, hosts = trials["started_at"].min(), trials["host"].dropna().nunique()
    devices = ", ".join(map(str, trials["device"].dropna().value_counts().index))
    return (
        name,
        manifest.space,
        len(trials),
        *(int((trials["status"] == end).sum()) for end in _ENDS),
        int(trials["configuration"].nunique()),
        int(trials["seed"].nunique()),
        "" if pd.isna(began) else f"{began:%Y-%m-%d %H:%M} UTC",
        Hours(elapsed_hours(trials)),
        *(Hours(float(np.nansum(trials[time]))) for time in (HOURS, GPU_HOURS)),
        f"{devices}, {hosts} hosts" if hosts > 1 else devices,
    )


def _times(trials: pd.DataFrame) -> Iterator[Table]:
    whole = float(trials["wall_seconds"].sum())
    spent = {label: float(trials[name].sum()) for name, label in _PARTS.items()}
    spent["other"] = max(0.0, whole - sum(spent.values()))
    if whole:
        rows = tuple(
            (label, Hours(seconds / _HOUR), f"{100 * seconds / whole:.1f} %")
            for label, seconds in spent.items()
            if seconds >= 0.0005 * whole
        )
        yield Table("time", "Where the time went", ("part", "time", "share"), rows)


def failures(subject: ReportData, most: int) -> Iterator[Table]:
    """Failed trials and scores by reason."""
    trials, scores = subject.trials, subject.frames.scores
    failed = trials[trials["status"] == "failed"]
    which = failed["configuration"].map(subject.brief) + " seed " + failed["seed"].astype(str)
    frame = failed[["error_type", "error_text"]].set_axis(["error", "reason"], axis=1)
    yield from _grouped("failed-trials", "Failed trials", frame, which, most)
    failed = scores[scores["value"].isna()]
    frame, which = failed[["task", "protocol", "reason"]], failed["trial_id"].str.slice(0, 12)
    yield from _grouped("failed-scores", "Scores that could not be measured", frame, which, most)


def _grouped(
    name: str, title: str, frame: pd.DataFrame, which: "pd.Series[str]", most: int
) -> Iterator[Table]:
    if frame.empty:
        return
    keys = list(frame.columns)
    first = frame.fillna("").map(lambda text: (str(text).strip().splitlines() or [""])[0])
    groups = first.assign(which=which).groupby(keys, sort=False)["which"].unique()
    order = groups.iloc[(-groups.map(len)).argsort(kind="stable")]
    rows = tuple(
        (*key, len(names), first_names(list(names), _NAMED))
        for key, names in zip(order.index.tolist(), order, strict=True)
    )[: most or None]
    more = len(groups) - len(rows)
    yield Table(name, title, (*keys, "trials", "which"), rows, more=more)


def measured(subject: ReportData) -> Iterator[Table]:
    """Every kind of score with its number of rows, and the library versions that measured it."""
    trials, scores = subject.frames.trials, subject.frames.scores
    whole = scores[scores["subset"].isna() & scores["value"].notna()]
    if len(whole):
        yield _protocols(subject, whole)
    used = ((label, trials[column].dropna().value_counts()) for column, label in _USED.items())
    rows = [(label, _listed(found)) for label, found in used if len(found)]
    schemas = dict.fromkeys(str(one.schema) for one in subject.frames.manifests.values())
    rows.append(("schema of the study", ", ".join(schemas)))
    yield Table("versions", "Versions", ("what", "value"), tuple(rows))


def _protocols(subject: ReportData, whole: pd.DataFrame) -> Table:
    order = [task for suite in ("sts", "transfer") for task in subject.tasks(suite)]
    order += sorted({*whole["task"]} - {*order})
    texts = whole[["aggregation", "version"]].astype(object).fillna("")
    groups = whole.assign(**texts, task=pd.Categorical(whole["task"], order)).groupby(
        ["data", "suite", "protocol", "task", "split", "metric", "aggregation", "version"],
        observed=True,
    )
    found = groups.agg(least=("n", "min"), most=("n", "max"), trials=("trial_id", "nunique"))
    found = found.reset_index()
    shown = [name for name in _MEASURED if name != "version" or found[name].any()]
    rows: list[Row] = []
    for row in found.to_dict("records"):
        least, most = int(row["least"]), int(row["most"])
        count = f"{least:,} to {most:,}" if least != most else most
        rows.append((*(str(row[name]) for name in shown), count, int(row["trials"])))
    note = (
        "Aggregation of a task with subsets: all joins their pairs, mean averages their "
        "scores, wmean weights the scores by the subsets' sizes. Data: root means the files "
        "under the data root, toy the generated sets."
    )
    note += " Version: the fingerprint of a custom task." * ("version" in shown)
    return Table("protocols", "Protocols", (*shown, "rows", "trials"), tuple(rows), note)


def _listed(found: "pd.Series[int]") -> str:
    if len(found) == 1:
        return str(found.index[0])
    shown = [f"{value} ({count:,} trials)" for value, count in found.head(_SHOWN).items()]
    rest = len(found) - _SHOWN
    return ", ".join(shown) + (f", and {rest} others" if rest > 0 else "")
