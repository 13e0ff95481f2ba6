"""One run of a prepared search over its study, with any launcher."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tune_sentcl.config import TrialConfig, flatten, parse_dotted
from tune_sentcl.errors import Fault, StudyError, first_names
from tune_sentcl.history import CONFIRM_ORIGIN, History
from tune_sentcl.results.confirming import confirming_seeds, with_confirmation
from tune_sentcl.results.standings import Standings
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import Confirmation, SearchRecord, SeedPlan
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.disk_need import DiskNeed, check_disk
from tune_sentcl.tuning.first_checks import study_at
from tune_sentcl.tuning.limits import Limits
from tune_sentcl.tuning.prepare import PreparedSearch
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.sampler.optuna_journal import JournalMirror
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.session_study import SessionSettings
from tune_sentcl.watch.progress_file import progress_file
from tune_sentcl.watch.tracking import tracking


@dataclass(frozen=True)
class SearchOutcome:
    """How a search ended.

    Attributes:
        study: The study's folder or URL.
        trials: Requested trials that the study holds.
        ran: Runs of this command; a trial runs once for each of its stages.
        failures: Trials of this run that failed, without those of `timed_out`.
        timed_out: Trials of this run that exceeded --trial-timeout.
        exhausted: Whether the ranges hold fewer configurations than requested.
        ended_by: The limit that ended the search before all trials had run; empty without one.
        to_run: Runs that a repetition of the command would make: missing or failed ones.
        untried: Trials of `to_run` that have never failed.
        needs_retraining: Trials that lack a score and would have to be trained again for it.
        notes: The messages of the search, such as warnings on its inputs.
    """

    study: str
    trials: int
    ran: int
    failures: int
    timed_out: int
    exhausted: bool
    ended_by: str
    to_run: int
    untried: int
    needs_retraining: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def combined_with(self, other: "SearchOutcome") -> "SearchOutcome":
        """The outcome of this run and a later run of the same study together."""
        return replace(
            self,
            trials=self.trials + other.trials,
            ran=self.ran + other.ran,
            failures=self.failures + other.failures,
            timed_out=self.timed_out + other.timed_out,
            ended_by=self.ended_by or other.ended_by,
            to_run=self.to_run + other.to_run,
            untried=self.untried + other.untried,
            needs_retraining=(*self.needs_retraining, *other.needs_retraining),
        )


Launch = Callable[[Session], None]
"""Runs a session to its end."""


def run_session(prepared: PreparedSearch, path: str, run: Launch, limits: Limits) -> SearchOutcome:
    """Run what a study lacks with `run`, a launcher, and compact the study at the end."""
    proposals, watcher = prepared.proposals, prepared.watcher
    with open_session(prepared, path, limits) as session:
        try:
            if not session.finished:
                run(session)
            session.study.keep_best_checkpoints()
        finally:
            watcher.close()
        session.close()
        session.study.record()
    needs_retraining = tuple(proposals.needs_retraining)
    failed = {name for name in session.history.with_status("failed") if proposals.runs_again(name)}
    failed = (failed & {*proposals.trials()}) | session.study.failed_again
    to_run = proposals.total - proposals.done + len(failed - proposals.waiting())
    if session.stop_reason:
        failing = f", {len(failed)} of which have failed" if failed else ""
        watcher.say(
            f"{session.stop_reason}: {to_run} of {proposals.total} runs are left{failing}; "
            "repeat the command to go on"
        )
    if needs_retraining:
        watcher.say(
            f"{len(needs_retraining)} finished trials lack a requested score, and their weights "
            f"were not kept ({first_names(needs_retraining)}): --retrain trains them again"
        )
    return SearchOutcome(
        study=path,
        trials=len(list(proposals.trials())),
        ran=session.ended,
        failures=session.failures - session.timed_out,
        timed_out=session.timed_out,
        exhausted=proposals.exhausted,
        ended_by=session.stop_reason or "",
        to_run=to_run,
        untried=to_run - len(failed),
        needs_retraining=needs_retraining,
    )


@contextmanager
def open_session(prepared: PreparedSearch, path: str, limits: Limits) -> Iterator[Session]:
    """Open a search's study as its only driver, and add its trials to the search."""
    study, is_local = study_at(path, prepared.space), StudyFiles.at(path).folder is not None
    first = None
    if study is not None:  # refuse other seeds before anything is written
        prepared.check_halvings(study.manifest.search)
    elif is_local:  # so that a disk without room is not written to
        first = _resumed(prepared, path, None)
    with StudyDriver.open(
        path,
        space=prepared.space,
        command=sys.argv,
        say=prepared.watcher.say,
    ) as driver:
        if first and driver.study.manifest.search is not None:
            rule = "another command has begun this study in the meantime"
            raise StudyError(Fault(path, "", "", rule, "Repeat the command."))
        prepared, history, search_record = first or _resumed(prepared, path, driver.study)
        halvings = prepared.proposals.record
        record = replace(
            prepared.record(),
            failed_again=search_record.failed_again,
            seed_plan=_seed_plan(search_record, prepared, history),
            budget=halvings.budget,
            halvings=halvings.halvings,
            whole=halvings.whole,
        )
        if prepared.settings.origin == CONFIRM_ORIGIN:
            record = replace(search_record, seed_plan=_confirmed(search_record, prepared))
        driver.record(record)
        mirror = _mirror(prepared, driver)
        track, name = prepared.options.track, prepared.space.name
        with (
            progress_file(prepared.watcher, driver) as watcher_with_file,
            tracking(track, path, name, watcher_with_file) as watcher,
        ):
            session = Session(
                driver,
                prepared.proposals,
                prepared.settings,
                watcher,
                mirror,
                limits,
            )
            _begin(prepared, session)
            yield session


def _resumed(
    prepared: PreparedSearch, path: str, study: Study | None
) -> tuple[PreparedSearch, History, SearchRecord]:
    resumed = prepared.resumed(study)
    check_disk(path, DiskNeed.of(prepared.proposals, prepared.loader))
    return resumed


def _begin(prepared: PreparedSearch, session: Session) -> None:
    """Say what runs."""
    watcher, proposals = prepared.watcher, prepared.proposals
    if prepared.settings.origin != "single":
        watcher.best = session.history.best(session.study.older)
        watcher.objective = str(prepared.objectives[0])
    session.watcher.begin(proposals.done, proposals.total)


def _seed_plan(
    recorded: SearchRecord, prepared: PreparedSearch, history: History
) -> SeedPlan | None:
    """The plan of the study's first search, if no scores of single trials were seen before."""
    if not len(history):
        return prepared.record().seed_plan if prepared.settings.origin is None else None
    return recorded.seed_plan


def _confirmed(record: SearchRecord, prepared: PreparedSearch) -> SeedPlan:
    """The seed plan of the search that is confirmed, with this confirmation as the last."""
    plan = record.seed_plan or SeedPlan((), None)
    return with_confirmation(plan, Confirmation(prepared.proposals.seeds, prepared.confirmed))


def limits_of(options: SearchOptions) -> Limits:
    """The limits that the options set."""
    hours = options.max_gpu_hours
    gpu_seconds = None if hours is None else 3600 * hours
    return Limits(options.max_failures, options.max_time, gpu_seconds, options.trial_timeout)


def _mirror(prepared: PreparedSearch, driver: StudyDriver) -> JournalMirror | None:
    folder = driver.study.files.folder
    if folder is None or prepared.settings.origin == CONFIRM_ORIGIN:
        return None
    journal = folder / "optuna.journal"
    names = [str(objective) for objective in prepared.objectives]
    return JournalMirror(journal, prepared.space, names, prepared.watcher.say)


def confirmation_search(prepared: PreparedSearch, path: str) -> PreparedSearch | None:
    """The search that runs winner, baseline and runner-up of the study on fresh seeds.

    Its seeds are those of `confirming_seeds`. It is None if no confirmation is
    requested, if each configuration has lost a seed, or if no seed changes the scores. Its trials
    have the origin `confirm`: the sampler does not learn from them, rankings leave them out, and
    their weights are not kept.
    """
    wanted, say = prepared.options.confirm, prepared.watcher.say
    if not wanted:
        return None
    study = Study.read(path)
    standings = Standings.read(study)
    compared = standings.contenders()
    if not compared or next(iter(compared.values())).chosen_lost(1):
        say("nothing is confirmed: of each configuration a seed failed or was stopped")
        return None
    drawn = [name for name, each in compared.items() if each.constant_score() is None]
    if not drawn:
        say("nothing is confirmed: no seed changes the scores of the best configurations")
        return None
    rows = study.trials(["seed", "configuration", "config"]).to_pylist()
    seeds, told = confirming_seeds(standings, wanted, {row["seed"] for row in rows})
    if told:
        say(told)
    texts = {row["configuration"]: row["config"] for row in rows}
    configs = [_config(prepared, name, texts[name]) for name in drawn]
    space = replace(prepared.space, configurations=tuple(configs), ranges=(), seeds=seeds)
    say(f"{len(drawn)} configurations run with {len(seeds)} fresh seeds: {', '.join(drawn)}")
    watcher = prepared.watcher.for_confirmation()
    options = replace(prepared.options, trials=0, budget=None, keep=0, confirm=0)
    return replace(
        prepared,
        space=space,
        options=options,
        proposals=Proposals(space, prepared.proposals.namer, options, seeds, watcher.say),
        watcher=watcher,
        settings=SessionSettings(space.name, 0, CONFIRM_ORIGIN),
        given=[],
        whole=[],
        confirmed=tuple(compared),
    )


def _config(prepared: PreparedSearch, name: str, text: str) -> TrialConfig:
    """The config of a configuration: the requested one, or that of a study's row."""
    if name in prepared.proposals.configurations:
        return prepared.proposals.configurations.config(name).model_copy(update={"seed": 0})
    config = parse_dotted(dict(flatten(json.loads(text))), f"configuration {name}")
    return config.model_copy(update={"seed": 0})
