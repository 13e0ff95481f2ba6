"""The package's own search over a table: its proposals, rungs and session, without a study.

Only the ends are replaced: the space is the table's, the trials are rows of the table, and the
driver writes nothing. A proposed configuration becomes the nearest one of the table that the
search has not taken, and the sampler is told its knobs.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import optuna
import typer
from optuna.trial import TrialState
from replay_table import Free, Job, Params, Table, Task

from tune_sentcl.cli import app
from tune_sentcl.cli.options import EARLY_STOPPING, SAMPLING, parse_seeds
from tune_sentcl.cli.search_commands import search_options
from tune_sentcl.config import Fingerprints, Values
from tune_sentcl.errors import ConfigError, Fault, NonFiniteError
from tune_sentcl.history import History, RequestedScores, best_configuration
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.score import Score
from tune_sentcl.space import Range, Space
from tune_sentcl.trial import Progress
from tune_sentcl.tuning.configuration_groups import Sampling
from tune_sentcl.tuning.prepare import sampling_of
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.rungs import Rungs, spaced
from tune_sentcl.tuning.sampling import distribution, frozen_trial
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import budget_of
from tune_sentcl.tuning.session import Session, StoppingRules
from tune_sentcl.tuning.session_study import SessionSettings
from tune_sentcl.tuning.worker import Failure

DEFAULT = "default"
"""The policy without an option."""
LEARN = "learn"
"""The study of `--learn-from` in a policy: it stands for the tables of `--learn`."""
_DATA = {"evaluation.data": "root", "data.source": ""}
_INDEX = "configuration"


@dataclass(frozen=True)
class Policy:
    """The options of `search` in a policy, as the command line reads them.

    Attributes:
        options: The options.
        seeds: The seeds of each configuration.
        sizes_itself: Whether the policy says how many configurations are sampled.
    """

    options: SearchOptions
    seeds: tuple[int, ...]
    sizes_itself: bool


def parse_policy(text: str) -> Policy:
    """Parse the options of a policy with the parser of `tune-sentcl search`.

    Raises:
        ConfigError: `search` refuses an option, or the option has no meaning in a replay.
    """
    command: Any = cast(Any, typer.main.get_command(app)).commands["search"]
    words = [] if text == DEFAULT else shlex.split(text)
    try:
        context = command.make_context("search", ["table", "--study", "none", *words])
    except Exception as error:
        if not hasattr(error, "format_message"):  # Click's errors, which Typer may bring itself
            raise
        raise _fault(text, f"must hold options of search ({error.format_message()})") from None
    given = {one for one in context.params if _is_given(context, one)}
    panels = {one.name: getattr(one, "rich_help_panel", None) for one in command.params}
    others = {n for n in given if panels[n] not in (SAMPLING, EARLY_STOPPING)} - {"seeds"}
    if others:
        names = ", ".join(sorted(others))
        raise _fault(text, f"must hold options of sampling and early stopping, not {names}")
    options = search_options(context.params)
    if options.learn_from not in ((), (LEARN,)):
        raise _fault(text, f"--learn-from must be {LEARN}: the tables of --learn")
    parse_objectives(options.objectives, allow_test=options.allow_test_objective)
    if len(options.objectives) > 1:
        raise _fault(text, "must have one objective: a table has one score")
    seeds = parse_seeds(context.params.get("seeds")) or ()
    return Policy(options, seeds, "trials" in given or "budget" in given)


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE" and name not in ("space", "study")


def _fault(text: str, rule: str) -> ConfigError:
    return ConfigError(Fault("--policy", "", text, rule, "See `tune-sentcl search --help`."))


@dataclass(frozen=True)
class TableConfig:
    """A configuration of a table in place of a `TrialConfig`."""

    values: Params
    seed: int = 0

    def dotted(self) -> Params:
        """All values by dotted key."""
        return {**self.values, "seed": self.seed}

    def model_copy(self, update: Mapping[str, Any]) -> "TableConfig":
        """A copy with another seed."""
        return replace(self, **update)


@dataclass(frozen=True)
class TableSpace(Space):
    """The space of a table's ranges, without a grid."""

    table: Table | None = None

    @classmethod
    def of(cls, table: Table) -> "TableSpace":
        """Make the space."""
        empty: Any = ("", (), "", (), {})
        return cls(table.name, *empty, table.ranges, (0,), "", table.name, table=table)

    def active_ranges(self, values: Values) -> list[Range]:
        """The ranges of knobs that a method and an optimizer have."""
        assert self.table is not None  # noqa: S101 - `of` gives it
        return self.table.active_ranges(values)

    def branches(self) -> list[dict[str, Any]]:
        """The combinations of method and optimizer that the table has."""
        assert self.table is not None  # noqa: S101 - `of` gives it
        ranged = {item.key for item in self.ranges}
        found = {kind: self.table.kinds[of.argmax()] for kind, of in self.table.of_kind.items()}
        return [{k: v for k, v in kind.items() if k in ranged} for kind in found.values()]

    def sampled(self, values: Values) -> Any:
        """The configuration of the params of a row."""
        return TableConfig(self.sampled_values(values))

    def sampled_values(self, values: Values) -> dict[str, Any]:
        """All values of the configuration of a row's params."""
        return {**_DATA, **values}

    def params_of(self, values: Values) -> dict[str, Any] | None:
        """The params among a configuration's values."""
        return {item.key: values[item.key] for item in self.active_ranges(values)}


class _Namer:
    """Names configurations and trials by their rows; see `TrialNamer`."""

    def __init__(self, task: Task) -> None:
        self.loader = SimpleNamespace(load=lambda config: self._inputs)
        self._inputs = SimpleNamespace(
            sets=SimpleNamespace(data="root"),
            corpus=SimpleNamespace(source=""),
            fingerprints=Fingerprints("", ""),
        )
        self._requested = RequestedScores("root", frozenset())
        self._table, self._names = task.table, task.names

    def index_of(self, values: Values) -> int:
        """The index of a configuration in the table."""
        return self._table.index[self._table.key(values)]

    def resolve(self, values: Values) -> Any:
        """The inputs and requested scores, the same for all."""
        return SimpleNamespace(inputs=self._inputs, requested=self._requested)

    def configuration(self, values: Values) -> str:
        """The name of a configuration."""
        return self._names[self.index_of(values)]

    def trial_ids(self, values: Values, seeds: Iterable[int]) -> list[str]:
        """The names of its trials."""
        return [f"{self.configuration(values)}-{seed}" for seed in seeds]


class TableProposals(Proposals):
    """Proposals that take the nearest free configuration of the table."""

    def __init__(self, space: Space, namer: Any, sampling: Sampling, free: Free) -> None:
        super().__init__(space, namer, sampling)
        self._free, self._table_namer = free, namer

    def whole_steps(self, trial_id: str) -> int:
        """The points of a trial stand for its steps."""
        return self._free.table.points

    def _is_new(self, params: dict[str, Any]) -> bool:
        return self._free.exists(params)

    def _queue_sampled(self, optuna_trial: optuna.Trial, params: dict[str, Any]) -> None:
        values = self.space.table.params[self._free.take(params)]  # type: ignore[attr-defined]
        params = {item.key: values[item.key] for item in self.space.active_ranges(values)}
        tell_params(optuna_trial, params, self.space.ranges)
        super()._queue_sampled(optuna_trial, params)


def tell_params(trial: optuna.Trial, params: Params, ranges: Sequence[Range]) -> None:
    """Replace what the sampler drew by the params that run."""
    for item in ranges:
        if item.key in params:
            drawn_from = distribution(item)
            value = drawn_from.to_internal_repr(params[item.key])
            trial.storage.set_trial_param(trial._trial_id, item.key, value, drawn_from)


class OwnSearch:
    """A search of this package over a task; see `replay_table.Searcher`."""

    def __init__(
        self, task: Task, policy: Policy, budget: float, learn: Sequence[Table] = ()
    ) -> None:
        options = _sized(policy, budget, task.seed)
        space, self._namer, self._task = TableSpace.of(task.table), _Namer(task), task
        options.check(space)
        if policy.seeds and max(policy.seeds) >= len(task.seeds):
            rule = f"{task.table.name} shows a search {len(task.seeds)} seeds, counted from 0"
            raise ConfigError(Fault("--seeds", "", str(max(policy.seeds)), rule, "Ask for fewer."))
        objectives = parse_objectives(options.objectives, allow_test=True)
        sampling = sampling_of(options, policy.seeds or tuple(range(len(task.seeds))))
        proposals = TableProposals(space, self._namer, sampling, Free(task.table))
        proposals.resume_from(History(objectives))
        if options.learn_from:
            _learn(proposals, space, learn)
        rules = StoppingRules(_rungs(options, task.table), budget_of(options))
        settings = SessionSettings(space.name, keep=0)
        quiet: Any = _Silent()
        self._session = Session(_no_study(), proposals, settings, quiet, None, rules)
        self._objective = objectives[0]
        self._trials: dict[tuple[int, int], str] = {}
        self._made: dict[tuple[int, int], int] = {}
        self._scores: dict[str, list[float]] = {}

    def next(self) -> Job | None:
        """Take the session's next trial."""
        assignment = None if self._session.finished else self._session.next()
        if assignment is None:
            return None
        self._session.started(assignment.trial_id)
        config: Any = assignment.config
        job = Job(self._namer.index_of(config.values), config.seed, self._task.table.points)
        self._trials[job.configuration, job.seed] = assignment.trial_id
        return job

    def point(self, job: Job, number: int, score: float) -> bool:
        """Report an evaluation point or the end."""
        final = number == self._task.table.points
        self._made[job.configuration, job.seed] = number
        rows = int(self._task.table.rows[job.configuration, number - 1])
        scores = (_score(self._objective, score),) if final else ()
        progress = Progress(number, job.last, rows, score, scores, {"steps": number}, final)
        if final:
            name = self._task.names[job.configuration]
            self._scores.setdefault(name, []).append(score)
        return self._session.progress(self._trials[job.configuration, job.seed], progress)

    def fail(self, job: Job) -> None:
        """Report a score that is not a number."""
        made = 1 + self._made.get((job.configuration, job.seed), 0)
        failure = Failure(NonFiniteError.__name__, "the table has no score", {"steps": made})
        self._session.fail(self._trials[job.configuration, job.seed], failure)

    def choice(self) -> int | None:
        """Choose as the search's rankings do."""
        if self._session.fatal is not None:
            raise self._session.fatal
        if not self._scores:
            return None
        return self._task.names.index(best_configuration(self._scores))


def _sized(policy: Policy, budget: float, seed: int) -> SearchOptions:
    """The options with the seed, and with the budget unless they say how much to sample."""
    options = replace(policy.options, sampler_seed=seed)
    is_open = not policy.sizes_itself and options.sampler != "grid"
    return replace(options, budget=budget) if is_open else options


def _rungs(options: SearchOptions, table: Table) -> Rungs | None:
    """The rungs of a search; the first lies no lower than the slowest first point."""
    if options.scheduler != "asha" or table.points == 1:
        return None
    return Rungs(spaced(options, int(table.rows[:, 0].max())))


def _learn(proposals: Proposals, space: Space, tables: Iterable[Table]) -> None:
    """Give the sampler the configurations of other tables, as `--learn-from` gives studies."""
    found = [
        frozen_trial(space, one, TrialState.COMPLETE, [float(score)], {}, {_INDEX: ""})
        for table in tables
        for one, score in zip(table.params, table.truth(range(table.seeds)), strict=True)
        if score > -float("inf") and all(k in one for k in _keys(space, one))
    ]
    proposals.sampler_study.add_past_trials([trial for trial in found if trial is not None])


def _keys(space: Space, params: Params) -> list[str]:
    return [item.key for item in space.active_ranges(params)]


def _score(objective: Objective, value: float) -> Score:
    where = (objective.task, objective.split, objective.metric, objective.protocol)
    task, split, metric, protocol = where
    return Score("sts", task, cast(Any, split), metric, protocol, "root", value, 1)


def _no_study() -> Any:
    """A study's driver that writes nothing."""
    study = SimpleNamespace(
        manifest=SimpleNamespace(search=None, git_commit=None), checkpoints=set, states=set
    )
    return SimpleNamespace(
        study=study,
        next_attempt_label=lambda trial_id: "",
        committed_label=lambda trial_id: "",
        commit=lambda row, running, weights: None,
        record=lambda search, plan=None: None,
    )


class _Silent:
    """A watcher that shows nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None
