"""What a search would do: its trials, which the study holds, and about what the rest takes."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.config import short_name, varied
from tune_sentcl.errors import CheckpointError, DataError
from tune_sentcl.history import History
from tune_sentcl.launch.estimate import Estimate, by_timing, checkpoint_bytes, from_study
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.prepared import Prepared, prepare
from tune_sentcl.launch.rungs import Spacing
from tune_sentcl.launch.slots import this_machine, trials_at_a_time
from tune_sentcl.launch.spacing import most_rows
from tune_sentcl.launch.worker import study_path
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.rows import masked
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
        return _unidentified(loaded, seeds or loaded.seeds, mask_text(str(error)))
    history = _history(prepared, study)
    prepared.recall(history)
    proposals = prepared.proposals
    to_run = proposals.queued()
    everything = list(proposals.known())
    keys = varied([assignment.config.dotted() for assignment in everything])
    status = _statuses(prepared, history, to_run)
    rows = [_row(assignment, keys, status[assignment.trial_id]) for assignment in everything]
    sampled = proposals.total - len(rows)
    notes = [
        f"{len(rows)} trials known, {len(to_run)} of them to run; {sampled} more from the sampler"
    ]
    if proposals.left:
        notes.append(
            f"{len(proposals.left)} lack a score that is asked for, and their weights were not "
            "kept: they stay as they are, and --retrain trains them again"
        )
    if prepared.spacing is not None:
        notes.append(_rungs(prepared.spacing, most_rows(loaded, prepared.loader)))
    if to_run or sampled:
        estimates = _estimates(prepared, to_run or everything, history.wall_seconds(), options)
        notes += _costs(estimates, len(to_run) + sampled, options)
    return Plan(rows, notes)


def _rungs(spacing: Spacing, rows: int) -> str:
    rungs = [f"{rung:,}" for rung in spacing.up_to(rows)]
    if not rungs:
        return (
            f"no trial comes to the first rung, {spacing.grace:,} rows: nothing is stopped early"
        )
    *low, top = rungs
    listed = f"{', '.join(low)} and {top}" if low else top
    return f"rungs at {listed} rows seen; the best 1 in {spacing.reduction} go on at each"


def _history(prepared: Prepared, study: str | None) -> History:
    if study is None or not StudyFiles.at(study_path(study)).exists(MANIFEST):
        return History(prepared.objectives)
    kept = Study.read(study_path(study), selections=prepared.selections(study_path(study)))
    kept.manifest.check_space(prepared.space, kept.files.where)
    return History.read(kept, prepared.objectives)


def _statuses(
    prepared: Prepared, history: History, to_run: Sequence[Assignment]
) -> dict[str, str]:
    """What there is to say of each trial."""
    found: dict[str, str] = {
        a.trial_id: history.status(a.trial_id) or "" for a in prepared.proposals.known()
    }
    for name in prepared.proposals.left:
        found[name] = "finished; lacks a score, its weights were not kept"
    for assignment in to_run:
        before = history.status(assignment.trial_id)
        match assignment.action:
            case "train":
                found[assignment.trial_id] = f"to run ({before} before)" if before else "to run"
            case "measure":
                found[assignment.trial_id] = "to measure"
            case "retrain":
                found[assignment.trial_id] = "to train again"
    return found


def _estimates(
    prepared: Prepared,
    trials: Sequence[Assignment],
    seconds: Sequence[float],
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


def _row(assignment: Assignment, keys: Sequence[str], status: str) -> dict[str, Any]:
    return {
        "trial_id": assignment.trial_id,
        **_knobs(assignment.config.dotted(), keys),
        "seed": assignment.config.seed,
        "status": status,
    }


def _knobs(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {short_name(key): masked(config.get(key)) for key in keys}


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
    workers = trials_at_a_time(options, [this_machine()])
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
