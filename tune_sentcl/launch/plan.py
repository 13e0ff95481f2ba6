"""What a search would do: its trials, which the study holds, and about what the rest takes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.errors import CheckpointError, DataError
from tune_sentcl.launch.estimate import Estimate, by_timing, checkpoint_bytes, from_study
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.proposals import Assignment
from tune_sentcl.launch.search import Prepared, prepare
from tune_sentcl.launch.worker import study_path
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.study import Study

_BYTES_A_TRIAL = 60_000  # scores, curves and row of one trial, compressed, with room


@dataclass(frozen=True)
class Plan:
    """A plan for people and programs.

    Attributes:
        rows: One a trial: `trial_id`, `seed`, what sets it apart, and `status`: `to run`, or what
            the study says.
        notes: Totals, estimated time and disk, one line each.
    """

    rows: list[dict[str, Any]]
    notes: list[str]


def make_plan(
    space: str | Path,
    study: str | None,
    data: str | Path | None,
    overrides: Mapping[str, Any],
    seeds: Sequence[int] | None,
    options: SearchOptions,
) -> Plan:
    """Plan a search without running any of it.

    Where data or checkpoint are not at hand, the trials are listed without their ids.

    Raises:
        BadInputError: Space, settings or study cannot be read.
    """
    loaded = load_space(space, overrides)
    try:
        prepared = prepare(loaded, data, seeds, options)
    except (CheckpointError, DataError) as error:
        return _unidentified(loaded, seeds or loaded.seeds, str(error))
    statuses, seconds = _restore(prepared, study)
    left = {assignment.trial_id for assignment in prepared.proposals.queued}
    everything = prepared.proposals.assignments
    rows = [_row(assignment, left, statuses) for assignment in everything]
    to_run = prepared.proposals.queued
    sampled = prepared.proposals.total - len(rows)
    notes = [
        f"{len(rows)} trials known, {len(to_run)} of them to run; {sampled} more from the sampler"
    ]
    if to_run or sampled:
        first = (to_run or everything)[0]
        inputs = prepared.loader.load(first.config)
        if seconds:
            estimate = from_study(seconds, checkpoint_bytes(inputs.checkpoint))
        else:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            estimate = by_timing(first.config, inputs, device, options.cpus_per_trial)
        notes += _costs(estimate, len(to_run) + sampled, options)
    return Plan(rows, notes)


def _restore(prepared: Prepared, study: str | None) -> tuple[dict[str, str], dict[str, float]]:
    """What the study says of each trial, and the wall seconds of the finished ones."""
    if study is None or not StudyFiles.at(study_path(study)).exists(MANIFEST):
        return {}, {}
    handle = Study.read(study_path(study))
    prepared.restore(handle)
    rows = handle.trials().select(["trial_id", "status", "wall_seconds"]).to_pylist()
    seconds = {
        row["trial_id"]: row["wall_seconds"]
        for row in rows
        if row["status"] == "finished" and row["wall_seconds"] is not None
    }
    return {row["trial_id"]: row["status"] for row in rows}, seconds


def _row(assignment: Assignment, left: set[str], statuses: Mapping[str, str]) -> dict[str, Any]:
    status = statuses.get(assignment.trial_id, "")
    again = f"to run ({status} before)" if status else "to run"
    return {
        "trial_id": assignment.trial_id,
        **_knobs(assignment.config.dotted()),
        "seed": assignment.config.seed,
        "status": again if assignment.trial_id in left else status,
    }


def _knobs(config: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "lambda", "temperature", "num_positives", "num_negatives")
    return {name: config.get(f"method.{name}") for name in names}


def _unidentified(space: Space, seeds: Sequence[int], reason: str) -> Plan:
    rows = [
        {"trial_id": None, **_knobs(config.dotted()), "seed": seed, "status": "unknown"}
        for config in space.configurations
        for seed in seeds
    ]
    return Plan(
        rows, [f"{len(rows)} trials; which of them a study holds cannot be told: {reason}"]
    )


def _costs(estimate: Estimate, count: int, options: SearchOptions) -> list[str]:
    cores = max(1, (os.cpu_count() or 1) // options.cpus_per_trial)
    workers = min(cores, torch.cuda.device_count()) if torch.cuda.is_available() else cores
    minutes = estimate.seconds * count / min(workers, count) / 60
    checkpoints = estimate.checkpoint_bytes * min(count, options.keep + workers)
    disk = (checkpoints + count * _BYTES_A_TRIAL) / 1e6
    return [
        f"about {estimate.seconds:.0f} s a trial ({estimate.basis}), "
        f"{minutes:.1f} min with {min(workers, count)} at a time on this machine",
        f"about {disk:.0f} MB of disk at the peak",
    ]
