"""How numbers were measured, and with what: protocols, versions, data, commands."""

from collections.abc import Iterator

import pandas as pd

from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.table import Table, Value
from tune_sentcl.store.schema import LIBRARIES

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
    """Every kind of score of a whole task, with the rows that it was taken on."""
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
        task: place
        for suite in ("sts", "transfer")
        for place, task in enumerate(subject.tasks(suite))
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
        "wmean weights these by size. Data: root, the files under the data root; toy, generated "
        "sets."
    )
    if "version" in shown:
        note += " Version: the fingerprint of a task of one's own."
    return Table("protocols", "Protocols", columns, tuple(rows), note=note)


def versions(subject: Subject) -> Table:
    """What the trials ran with, and how many of them with each."""
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
    """Each study's command lines, as they were given, secrets hidden."""
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
