"""What is known of an exported model, as plain data: the card and programs read the same."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from tune_sentcl.analysis.summary import configurations
from tune_sentcl.config import DataName, evaluation_data_of
from tune_sentcl.export.choice import Candidate, Choice
from tune_sentcl.score import Score
from tune_sentcl.store.provenance import library_versions
from tune_sentcl.store.rows import masked
from tune_sentcl.store.schema import LIBRARIES

Record = dict[str, Any]

_FACTS = (
    *("trial_id", "configuration", "origin", "seed", "steps", "wall_seconds", "device"),
    *("data_source", "data_fingerprint", "checkpoint_fingerprint", "git_commit", "notes"),
)
_SPREAD = ("objective_mean", "objective_sd", "objective_n", "fresh_mean", "fresh_sd", "fresh_n")


def trial_record(choice: Choice, one: Candidate, how: str) -> Record:
    """The record of one trial's model.

    Args:
        choice: The study's trials by what it was chosen by.
        one: The trial.
        how: `best`, or `named`.

    Raises:
        StudyError: A file is damaged, or the disk refused.
    """
    found = choice.study.scores(where=pc.field("trial_id") == one.trial_id).to_pylist()
    scores = [{k: v for k, v in row.items() if k != "trial_id"} for row in found]
    return {
        "kind": "trial",
        "model": one.trial_id,
        **_chosen(choice, how, one.value, evaluation_data_of(one.row)),
        "members": _members(choice, [one]),
        "scores": scores,
        **_origin(choice),
    }


def soup_record(
    choice: Choice,
    members: Sequence[Candidate],
    value: float | None,
    alone: float | None,
    tried: Sequence[Mapping[str, Any]],
    scores: Iterable[Score],
) -> Record:
    """The record of an average of several trials' weights.

    Args:
        choice: The study's trials by what it was chosen by.
        members: Those whose weights are in it.
        value: What it scores by that.
        alone: What its best member scores by that, measured in the same place.
        tried: Every trial that was looked at, and what became of it.
        scores: Measured of the average itself.

    Raises:
        StudyError: A file is damaged, or the disk refused.
    """
    name = soup_id([one.trial_id for one in members])
    return {
        "kind": "soup",
        "model": name,
        "soup_id": name,
        **_chosen(choice, "greedy", value, choice.data),
        "best_member": alone,
        "members": _members(choice, members),
        "tried": [dict(one) for one in tried],
        "scores": [asdict(score) for score in scores],
        **_origin(choice),
    }


def soup_id(trial_ids: Iterable[str]) -> str:
    """The name of an average of some trials' weights, in whatever order."""
    text = json.dumps(sorted(trial_ids))
    return f"soup-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _chosen(choice: Choice, how: str, value: float | None, data: DataName) -> Record:
    return {
        "chosen": how,
        "objective": str(choice.objective),
        "value": value,
        "data": data,
        "ranked": len(choice.ranked),
    }


def _members(choice: Choice, those: Sequence[Candidate]) -> list[Record]:
    rows = choice.rows([one.trial_id for one in those])
    spread = configurations(choice.study, [choice.objective])
    return [_member(choice, one, rows[one.trial_id], spread) for one in those]


def _member(
    choice: Choice, one: Candidate, row: Mapping[str, Any], spread: pd.DataFrame
) -> Record:
    return {
        **{name: row[name] for name in _FACTS},
        "value": one.value,
        "config": json.loads(row["config"]),
        "versions": {n: row[f"version_{n}"] for n in LIBRARIES if row[f"version_{n}"]},
        "command": choice.command(row),
        "over_seeds": _spread(spread, row),
    }


def _spread(table: pd.DataFrame, row: Mapping[str, Any]) -> Record:
    """What the seeds of a trial's configuration come to."""
    data = evaluation_data_of(row)
    fits = table[(table["configuration"] == row["configuration"]) & (table["data"] == data)]
    if not len(fits):
        return {}
    found = fits.astype(object).where(fits.notna(), None).iloc[0]
    return {name: found[name] for name in _SPREAD if name in fits.columns}


def _origin(choice: Choice) -> Record:
    manifest = choice.study.manifest
    return {
        "space": manifest.space,
        "commands": list(masked(manifest.commands)),
        "written_with": dict(library_versions()),
    }
