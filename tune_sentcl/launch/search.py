"""A search from its space to its study."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from tune_sentcl.config import parse_config
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.launch.estimate import check_disk, checkpoint_bytes
from tune_sentcl.launch.local import run_locally
from tune_sentcl.launch.mirror import JournalMirror
from tune_sentcl.launch.objective import parse_objectives
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.proposals import Proposals
from tune_sentcl.launch.ray_environment import prepare_ray
from tune_sentcl.launch.session import (
    Session,
    SessionSettings,
    known_results,
    sampled_configurations,
)
from tune_sentcl.launch.watch import RichWatcher
from tune_sentcl.launch.worker import WorkerSettings, study_path
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.study import Study
from tune_sentcl.train import check_batches
from tune_sentcl.trial import InputLoader


@dataclass(frozen=True)
class SearchOutcome:
    """How a search ended.

    Attributes:
        study: Where its tables lie.
        trials: Trials that it holds and that were asked for.
        ran: Trials that ended in this run.
        failures: How many of those failed.
        exhausted: Whether the ranges held fewer configurations than were asked for.
    """

    study: str
    trials: int
    ran: int
    failures: int
    exhausted: bool


def search(
    space: Space | str | Path,
    study: str | Path,
    *,
    data: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    seeds: Sequence[int] | None = None,
    options: SearchOptions | None = None,
) -> SearchOutcome:
    """Run every trial of a space that the study does not hold yet.

    Killed at any moment and called again in the same way, it ends with every trial exactly once.

    Args:
        space: A loaded space, a shipped name, or a TOML file.
        study: A folder or an object store's URL; made where it is not there.
        data: The data root; None takes TUNE_SENTCL_DATA.
        overrides: Dotted keys that replace the space's values; only for a space that is not loaded
            yet.
        seeds: Seeds of every configuration; None takes the space's.
        options: Sampler, scheduler, resources and the rest.

    Returns:
        What happened; read the numbers with `read_study(study)`.

    Raises:
        BadInputError: Something asked for cannot be; nothing has been run.
        KeyboardInterrupt: Passed on; what had ended is kept.
    """
    options = options or SearchOptions()
    if not isinstance(space, Space):
        space = load_space(space, overrides)
    prepared = prepare(space, data, seeds, options)
    return run_prepared(prepared, study_path(study), options)


@dataclass(frozen=True)
class Prepared:
    """A search that has been checked and loaded, before it touches its study."""

    space: Space
    proposals: Proposals
    loader: InputLoader
    settings: SessionSettings

    def restore(self, study: Study) -> int:
        """Take over what a study holds; returns how many of its trials answer what is asked."""
        sampled = sampled_configurations(study)
        where = f"{study.files.where}/trials"
        self.proposals.adopt({k: parse_config(v, where) for k, v in sampled.items()})
        results = known_results(study, self.proposals.assignments, self.loader, self.settings)
        self.proposals.restore(results)
        return len(results)


def prepare(
    space: Space,
    data: str | Path | None,
    seeds: Sequence[int] | None,
    options: SearchOptions,
    origin: Literal["single"] | None = None,
) -> Prepared:
    """Check the options and load what the grid reads; writes nothing.

    Raises:
        BadInputError: Something asked for cannot be.
    """
    objectives = parse_objectives(options.objectives, allow_test=options.allow_test_objective)
    options.check(space)
    _check_this_machine(options)
    loader = InputLoader(data_root(data))
    proposals = Proposals(
        space,
        loader,
        seeds=tuple(dict.fromkeys(seeds)) if seeds else space.seeds,
        sampled=options.trials,
        sampler=options.sampler,
        objectives=len(objectives),
    )
    _check_batches(proposals, loader)
    settings = SessionSettings(space.name, objectives, options.keep, origin)
    return Prepared(space, proposals, loader, settings)


def data_root(data: str | Path | None) -> Path | None:
    """The data root, absolute: as given, else TUNE_SENTCL_DATA, else None."""
    given = data or os.environ.get("TUNE_SENTCL_DATA")
    return Path(given).expanduser().absolute() if given else None


def run_prepared(prepared: Prepared, path: str, options: SearchOptions) -> SearchOutcome:
    """Run what a study does not hold yet, and compact it at the end."""
    proposals = prepared.proposals
    if not StudyFiles.at(path).exists(MANIFEST):
        check_disk(path, _needed_bytes(prepared, options))
    with Study.open(path, space=prepared.space, command=sys.argv) as study:
        done = prepared.restore(study)
        check_disk(path, _needed_bytes(prepared, options))
        mirror = None
        if study.files.local:
            journal = Path(path) / "optuna.journal"
            count = len(prepared.settings.objectives)
            mirror = JournalMirror(journal, prepared.space.name, count, proposals.told())
        watcher = RichWatcher()
        session = Session(study, proposals, prepared.loader, prepared.settings, watcher, mirror)
        watcher.begin(done, proposals.total)
        try:
            if not session.finished:
                _launch(session, path, options)
        finally:
            watcher.close()
        study.compact()
    return SearchOutcome(
        path, proposals.total, session.ended, session.failures, proposals.exhausted
    )


def _launch(session: Session, path: str, options: SearchOptions) -> None:
    if options.launcher == "local":
        gpus = options.gpus_per_trial or 0.0
        run_locally(session, WorkerSettings(path, options.keep > 0, options.cpus_per_trial, gpus))
        return
    prepare_ray()
    from tune_sentcl.launch.on_ray import run_on_ray

    run_on_ray(session, options, path)


def _check_this_machine(options: SearchOptions) -> None:
    """Refuse at once what this machine cannot hold, before a local cluster or a study is made."""
    address = options.address or os.environ.get("RAY_ADDRESS") or "local"
    if options.launcher == "ray" and address != "local":
        return
    asked = (
        ("--cpus-per-trial", options.cpus_per_trial, os.cpu_count() or 1, "cores"),
        ("--gpus-per-trial", options.gpus_per_trial or 0, torch.cuda.device_count(), "GPUs"),
    )
    move = "Ask for less, or name a cluster (--address)."
    faults = [
        Fault(option, "", f"{wanted:g}", f"must fit this machine, which has {there} {what}", move)
        for option, wanted, there, what in asked
        if wanted > there
    ]
    if faults:
        raise ResourceError(faults)


def _check_batches(proposals: Proposals, loader: InputLoader) -> None:
    """Deal every grid trial's first epoch: a premise's group may not fit its batch, for example.

    Raises:
        DataError: A method cannot learn from a batch.
    """
    kinds = {
        (a.config.method.name, a.config.data, a.config.optimizer.batch_size): a.config
        for a in proposals.queued
    }
    for config in kinds.values():
        check_batches(loader.load(config).corpus, config)


def _needed_bytes(prepared: Prepared, options: SearchOptions) -> int:
    """Room for the kept checkpoints, those of the trials at hand, and the tables."""
    queued = prepared.proposals.queued
    if not queued:
        return 0
    concurrent = options.max_concurrent or max(1, (os.cpu_count() or 1) // options.cpus_per_trial)
    count = min(len(queued), options.keep + concurrent) if options.keep else 0
    checkpoints = {prepared.loader.load(assignment.config).checkpoint for assignment in queued}
    largest = max(map(checkpoint_bytes, checkpoints))
    return count * largest + 1_000_000
