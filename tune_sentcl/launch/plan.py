"""What a search would do: its trials, which the study holds, and about what the rest takes."""

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.config import short_name, varied
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
    statuses, seconds, kept = _restore(prepared, study)
    left = {assignment.trial_id for assignment in prepared.proposals.queued}
    everything = prepared.proposals.assignments
    keys = varied([assignment.config.dotted() for assignment in everything])
    rows = [_row(assignment, keys, left, statuses, kept) for assignment in everything]
    to_run = prepared.proposals.queued
    sampled = prepared.proposals.total - len(rows)
    notes = [
        f"{len(rows)} trials known, {len(to_run)} of them to run; {sampled} more from the sampler"
    ]
    if to_run or sampled:
        estimates = _estimates(prepared, to_run or everything, seconds, options)
        notes += _costs(estimates, len(to_run) + sampled, options)
    return Plan(rows, notes)


def _estimates(
    prepared: Prepared,
    trials: Sequence[Assignment],
    seconds: Mapping[str, float],
    options: SearchOptions,
) -> list[Estimate]:
    """One for each trial; trials that differ in their method's knobs and seed alone share one."""
    if seconds:
        inputs = prepared.loader.load(trials[0].config)
        return [from_study(seconds, checkpoint_bytes(inputs.checkpoint))] * len(trials)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    known: dict[Any, Estimate] = {}
    found = []
    for trial in trials:
        config = trial.config
        kind = (config.method.name, config.encoder, config.data, config.optimizer)
        if kind not in known:
            inputs = prepared.loader.load(config)
            known[kind] = by_timing(config, inputs, device, options.cpus_per_trial)
        found.append(known[kind])
    return found


def _restore(
    prepared: Prepared, study: str | None
) -> tuple[dict[str, str], dict[str, float], set[str]]:
    """What the study says of each trial, the wall seconds of the finished ones, whose weights."""
    if study is None or not StudyFiles.at(study_path(study)).exists(MANIFEST):
        return {}, {}, set()
    handle = Study.read(study_path(study))
    prepared.restore(handle)
    rows = handle.trials().select(["trial_id", "status", "wall_seconds"]).to_pylist()
    seconds = {
        row["trial_id"]: row["wall_seconds"]
        for row in rows
        if row["status"] == "finished" and row["wall_seconds"] is not None
    }
    kept = set(handle.files.names("checkpoints"))
    return {row["trial_id"]: row["status"] for row in rows}, seconds, kept


def _row(
    assignment: Assignment,
    keys: Sequence[str],
    left: set[str],
    statuses: Mapping[str, str],
    kept: set[str],
) -> dict[str, Any]:
    status = statuses.get(assignment.trial_id, "")
    again = f"to run ({status} before)" if status else "to run"
    if status == "finished":
        trained = assignment.trial_id in kept
        again = "to measure" if trained else "to train again: its weights were not kept"
    return {
        "trial_id": assignment.trial_id,
        **_knobs(assignment.config.dotted(), keys),
        "seed": assignment.config.seed,
        "status": again if assignment.trial_id in left else status,
    }


def _knobs(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {short_name(key): config.get(key) for key in keys}


def _unidentified(space: Space, seeds: Sequence[int], reason: str) -> Plan:
    keys = varied([config.dotted() for config in space.configurations])
    rows = [
        {"trial_id": None, **_knobs(config.dotted(), keys), "seed": seed, "status": "unknown"}
        for config in space.configurations
        for seed in seeds
    ]
    return Plan(
        rows, [f"{len(rows)} trials; which of them a study holds cannot be told: {reason}"]
    )


def _costs(estimates: Sequence[Estimate], count: int, options: SearchOptions) -> list[str]:
    """Totals of so many trials, the first of which are estimated; the rest are like their mean."""
    cores = max(1, (os.cpu_count() or 1) // options.cpus_per_trial)
    workers = min(cores, torch.cuda.device_count()) if torch.cuda.is_available() else cores
    seconds = [estimate.seconds for estimate in estimates]
    once = sum(estimate.once for estimate in dict.fromkeys(estimates))
    minutes = (statistics.mean(seconds) * count / min(workers, count) + once) / 60
    largest = max(estimate.checkpoint_bytes for estimate in estimates)
    checkpoints = largest * min(count, options.keep + workers)
    disk = (checkpoints + count * _BYTES_A_TRIAL) / 1e6
    slowest = max(estimates, key=lambda estimate: estimate.seconds)
    low, high = round(min(seconds)), round(max(seconds))
    each = f"{low}" if low == high else f"{low} to {high}"
    encoding = f", and {once:.0f} s of encoding once" if once >= 1 else ""
    return [
        f"about {each} s a trial ({slowest.basis}){encoding}; "
        f"{minutes:.1f} min with {min(workers, count)} at a time on this machine",
        f"about {disk:.0f} MB of disk at the peak",
    ]
