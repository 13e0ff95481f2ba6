"""The package's own search over a table: its queue, stages and session, without a study.

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
from replay_table import Free, Job, Params, Table, Task

from tune_sentcl.cli import app
from tune_sentcl.cli.options import parse_seeds, search_options
from tune_sentcl.config import Fingerprints, Values
from tune_sentcl.errors import ConfigError, Fault, NonFiniteError
from tune_sentcl.history import History, rank_keys
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.score import Score
from tune_sentcl.space import Range, Space
from tune_sentcl.trial import Progress
from tune_sentcl.tuning.configurations import SearchConfigurations
from tune_sentcl.tuning.options import SAMPLING, STAGES, SearchOptions
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.queue import Queue
from tune_sentcl.tuning.sampler import MOST_WHOLE, best_params, distribution, standardized
from tune_sentcl.tuning.search import limits_of
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.stages import SHARES
from tune_sentcl.tuning.worker import Failure

DEFAULT = "default"
"""The policy without an option."""
LEARN = "learn"
"""The study of `--learn-from` in a policy: it stands for the tables of `--learn`."""
LEARNING = f"--learn-from {LEARN}"
"""The policy that `default` means where there are older tables."""
_GIVEN = {"space": "table", "study": ""}  # what a replay gives itself
_DATA = {"evaluation.data": "root", "data.source": ""}


@dataclass(frozen=True)
class Policy:
    """The options of `search` in a policy, as the command line reads them.

    Attributes:
        options: The options.
        seeds: The seeds of each configuration; empty: all that a table shows.
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
    try:
        words = [] if text == DEFAULT else shlex.split(text)
    except ValueError as error:
        raise _fault(text, f"must hold options of search ({error})") from None
    words = [_GIVEN["space"], "--study", _GIVEN["study"], *words]
    try:
        context = command.make_context("search", words, help_option_names=[])
    except Exception as error:
        if not hasattr(error, "format_message"):  # Click's errors, which Typer may bring itself
            raise
        raise _fault(text, f"must hold options of search ({error.format_message()})") from None
    given = {one for one in context.params if _is_given(context, one)}
    panels = {one.name: getattr(one, "rich_help_panel", None) for one in command.params}
    others = {n for n in given if panels[n] not in (SAMPLING, STAGES)} - {"seeds"}
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
    return Policy(options, seeds, "samples" in given or "budget" in given)


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    is_on_line = source is not None and source.name == "COMMANDLINE"
    return is_on_line and context.params[name] != _GIVEN.get(name)


def _fault(text: str, rule: str) -> ConfigError:
    return ConfigError(
        Fault("--policy", value=text, rule=rule, move="See `tune-sentcl search --help`.")
    )


@dataclass(frozen=True)
class TableConfig:
    """A configuration of a table in place of a `TrialConfig`."""

    values: Params
    seed: int = 0
    method = SimpleNamespace(takes_steps=True)

    def dotted(self) -> Params:
        """All values by dotted key."""
        return {**self.values, "seed": self.seed}

    def model_copy(self, update: Mapping[str, Any]) -> "TableConfig":
        """A copy with another seed."""
        return replace(self, **update)


@dataclass(frozen=True)
class TableSpace(Space):
    """The space of a table's ranges, without a grid."""

    table: Any = None

    @classmethod
    def of(cls, table: Table) -> "TableSpace":
        """Make the space."""
        empty: Any = ("", (), "", (), {})
        return cls(table.name, *empty, table.ranges, (0,), "", table.name, table=table)

    def active_ranges(self, values: Values) -> list[Range]:
        """The ranges of knobs that a method and an optimizer have."""
        return cast(list[Range], self.table.active_ranges(values))

    def branches(self) -> list[dict[str, Any]]:
        """The combinations of method and optimizer that the table has."""
        ranged = {item.key for item in self.ranges}
        return [{k: v for k, v in kind.items() if k in ranged} for kind in self.table.kinds]

    def sampled(self, values: Values) -> Any:
        """The configuration of the params of a row."""
        return TableConfig(self.sampled_values(values))

    def sampled_values(self, values: Values) -> dict[str, Any]:
        """All values of the configuration of a row's params."""
        return {**_DATA, **values}

    def exact_params(self, config: Any) -> None:
        """No configuration: a table has no grid."""


class _Namer:
    """Names configurations and trials by their rows; see `TrialNamer`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._inputs = SimpleNamespace(
            sets=SimpleNamespace(data="root"),
            corpus=SimpleNamespace(source=""),
            fingerprints=Fingerprints("", ""),
        )
        self.loader = SimpleNamespace(
            load=lambda config: self._inputs, stage_objective=None, newly_mined={}
        )

    def index(self, values: Values) -> int:
        """The index of a configuration in the table."""
        return self._task.table.index[self._task.table.key(values)]

    def inputs(self, values: Values) -> Any:
        """The inputs, the same for all."""
        return self._inputs

    def configuration(self, values: Values) -> str:
        """The name of a configuration."""
        return self._task.names[self.index(values)]

    def trial_ids(self, values: Values, seeds: Iterable[int]) -> list[str]:
        """The names of its trials."""
        return [f"{self.configuration(values)}-{seed}" for seed in seeds]


class _TableConfigurations(SearchConfigurations):
    def add_recorded(self, recorded: Mapping[str, Any]) -> str:
        """Add a configuration that the search has taken."""
        return self.add_sampled(dict(recorded))

    def config(self, name: str) -> Any:
        """The config of a configuration."""
        return TableConfig(dict(self[name].values))


class TableQueue(Queue):
    """A queue that takes the nearest free configuration of the table."""

    def __init__(self, table: Table, question: Question) -> None:
        self._free, self._table = Free(table), table
        configurations = _TableConfigurations(question.space, question.namer, question.seeds)
        super().__init__(question, History(question.objectives), configurations=configurations)

    def _is_new(self, params: Params) -> bool:
        return self._free.exists(params)

    def _to_run(self, params: Params) -> Params:
        index = self._free.take(params)
        if self._sampler.asked is not None:
            return tell_params(self._sampler.asked, self._table, index)
        return params_of(self._table, index)


def tell_params(trial: optuna.Trial, table: Table, index: int) -> Params:
    """Replace what a sampler drew by the params of the configuration that runs."""
    params = params_of(table, index)
    for item in active_of(table, index):
        drawn_from = distribution(item)
        value = drawn_from.to_internal_repr(params[item.key])
        trial.storage.set_trial_param(trial._trial_id, item.key, value, drawn_from)
    return params


def params_of(table: Table, index: int) -> Params:
    """The values of the ranges of a configuration."""
    return {item.key: table.params[index][item.key] for item in active_of(table, index)}


def active_of(table: Table, index: int) -> list[Range]:
    """The ranges of a configuration's knobs."""
    return table.active_ranges(table.params[index])


class OwnSearch:
    """A search of this package over a task; see `replay_table.Searcher`."""

    def __init__(
        self,
        task: Task,
        policy: Policy,
        budget: float,
        learn: Sequence[Table] = (),
        priors: Sequence[Params] = (),
    ) -> None:
        """Prepare the search as `tune_sentcl.tuning.question` does."""
        options = _sized(policy, budget, task.seed)
        self._task, self._namer = task, _Namer(task)
        self._objective = parse_objectives(options.objectives, allow_test=True)[0]
        seeds = policy.seeds or tuple(range(len(task.seeds)))
        space = TableSpace.of(task.table)
        options.check(space)
        if max(seeds) >= len(task.seeds):
            rule = f"{task.table.name} shows a search {len(task.seeds)} seeds, counted from 0"
            raise ConfigError(
                Fault("--seeds", value=str(policy.seeds), rule=rule, move="Ask for fewer.")
            )
        if options.learn_from and not learn:
            rule = "needs --learn with a table other than the replayed one"
            raise ConfigError(
                Fault("--learn-from", value=LEARN, rule=rule, move="Name tables of other tasks.")
            )
        past = best_params(_past_studies(learn)) if options.learn_from else []
        shares = (1.0,) if options.is_whole else shares_of(task.table.points)
        watcher: Any = _Silent()
        question = Question(
            space,
            replace(options, keep=0),
            seeds,
            (self._objective,),
            cast(Any, self._namer),
            watcher,
            shares,
            given=(*past, *priors),
            whole=(*past[:MOST_WHOLE], *priors[:1]),
        )
        queue, limits = TableQueue(task.table, question), limits_of(options)
        self._session = Session(_no_study(), queue, question, watcher, limits=limits)
        self._trials: dict[tuple[int, int], str] = {}
        self._points: dict[tuple[int, int], int] = {}
        self._scores: dict[str, list[float]] = {}
        self._lost: set[str] = set()

    def next(self) -> Job | None:
        """Take the session's next trial."""
        assignment = None if self._session.finished else self._session.next()
        if assignment is None:
            return None
        self._session.started(assignment.trial_id)
        config: Any = assignment.config
        last = round(assignment.until * self._task.table.points)
        job = Job(self._namer.index(config.values), config.seed, last)
        self._trials[job.configuration, job.seed] = assignment.trial_id
        return job

    def point(self, job: Job, number: int, score: float) -> bool:
        """Report an evaluation point or the end."""
        key, final = (job.configuration, job.seed), number == self._task.table.points
        self._points[key] = number
        rows = int(self._task.table.rows[job.configuration, number - 1])
        scores = (_score(self._objective, score),) if final else ()
        paused = number == job.last and not final
        columns = {"steps": number}
        progress = Progress(number, job.last, rows, score, scores, columns, final, paused)
        if final:
            self._scores.setdefault(self._task.names[job.configuration], []).append(score)
        return self._session.progress(self._trials[key], progress) and number < job.last

    def fail(self, job: Job) -> None:
        """Report a score that is not a number."""
        key = (job.configuration, job.seed)
        self._lost.add(self._task.names[job.configuration])
        columns = {"steps": self._points.get(key, 0) + 1}
        failure = Failure(NonFiniteError.__name__, "the table has no score", columns)
        self._session.fail(self._trials[key], failure)

    def choice(self) -> int | None:
        """Choose as the search's rankings do; configurations that lost a seed come last."""
        if self._session.fatal is not None:
            raise self._session.fatal
        found = {name: v for name, v in self._scores.items() if name not in self._lost}
        found = found or self._scores
        keys = rank_keys(found)
        return self._task.names.index(min(keys, key=keys.__getitem__)) if found else None


def _sized(policy: Policy, budget: float, seed: int) -> SearchOptions:
    """The options with the seed, and with the budget unless they say how much to sample."""
    options = replace(policy.options, sampler_seed=seed)
    options = replace(options, states=0)
    is_open = not policy.sizes_itself and options.sampler != "grid"
    return replace(options, budget=budget) if is_open else options


def shares_of(points: int) -> tuple[float, ...]:
    """The points of a training that are nearest to the ends of stages, as shares of it."""
    return tuple(sorted({max(1, round(share * points)) / points for share in SHARES}))


def _past_studies(tables: Iterable[Table]) -> list[dict[tuple[tuple[str, Any], ...], float]]:
    """The configurations of other tables, as `--learn-from` takes those of studies."""
    pairs = [zip(table.params, table.truth().tolist(), strict=True) for table in tables]
    return [standardized({tuple(sorted(p.items())): t for p, t in found}) for found in pairs]


def _score(objective: Objective, value: float) -> Score:
    task, metric, protocol = objective.task, objective.metric, objective.protocol
    return Score("", task, cast(Any, objective.split), metric, protocol, "root", value, 1)


def _no_study() -> Any:
    """A study's driver that writes nothing."""
    manifest = SimpleNamespace(search=None, git_commit=None)
    study = SimpleNamespace(manifest=manifest, states=set, older=frozenset)
    return SimpleNamespace(
        study=study,
        next_attempt_label=lambda trial_id: "",
        committed_label=lambda trial_id: "",
        checkpoints=set,
        commit=lambda row, scores, curves, weights: None,
        record=lambda search, plan=None: None,
    )


class _Silent:
    """A watcher that shows nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None
