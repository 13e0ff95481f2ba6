"""The two searches that `init` proposes, with their times: a first look and a whole search."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tune_sentcl.errors import TuneSentclError
from tune_sentcl.judging.evidence import CONFIRMATION_SEEDS
from tune_sentcl.judging.statistics import POWER
from tune_sentcl.space import Space, load_space
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.plan import RAY_S, TrialTimer, estimate
from tune_sentcl.tuning.question import ask, first_training, whole_training
from tune_sentcl.tuning.queue import Queue, read_queue
from tune_sentcl.watch.terminal import terminal_watcher

_BUDGET = 20
"""The number of whole trainings that the whole search spends on sampled configurations."""
_LEAST, _MOST = 4, 10
"""The least and most whole trainings of a first look; with the least, it may leave out rows."""
_LEAST_BATCHES, _NEARLY_ALL = 8, 0.8
"""The least batches per epoch of a first look; from this share of all rows on, it uses all."""


def proposed_searches(path: Path, objective: str, minutes: float) -> Iterator[str]:
    """Propose two searches: their size, their time on this machine, and their commands.

    Args:
        path: The file of the search space.
        objective: The score that the searches maximize.
        minutes: About how long the first look should take.
    """
    space, budget, limit = load_space(str(path)), _LEAST, None
    look_time = whole_time = some_rows = ""
    # `init` has already named the rows that are also in a task, so these searches must not refuse
    # them.
    options = SearchOptions(objectives=(objective,), allow_overlap=True)
    halves = any(config.evaluation.every for config in space.configurations)
    options = options if halves else replace(options, scheduler="none")
    try:
        whole = _queue(space, replace(options, budget=_BUDGET, confirm=CONFIRMATION_SEEDS))
        timer = TrialTimer(whole.question.loader, options)
        whole_time = _time(whole, timer)
        budget, limit, rows = _size(whole, timer, 60 * minutes)
        fewer = space.with_overrides({"data.limit": limit})
        look_time = _time(_queue(fewer, replace(options, budget=budget), (0,)), timer)
        some_rows = f", on the first {limit:,} of {rows:,} rows" if limit else ""
    except TuneSentclError as error:
        yield f"the time cannot be estimated: {error}"
    search = ["tune-sentcl", "search", str(path), "--objective", objective]
    search += [] if halves else ["--scheduler", "none"]
    study = f"studies/{path.stem}"
    yield (
        f"First look{look_time}. The search samples configurations for the cost of {budget} "
        f"whole trainings, with one seed{some_rows}:"
    )
    limited = ["--set", f"data.limit={limit}"] if limit else []
    look = [*limited, "--budget", str(budget), "--seeds", "0", "--study", f"{study}-first-look"]
    yield shlex.join([*search, *look])
    yield (
        f"Whole search{whole_time}. The search samples configurations for the cost of "
        f"{_BUDGET} whole trainings, and trains {'the best' if halves else 'all'} of them "
        f"with {len(space.seeds)} seeds. Then it compares the best two with "
        f"{CONFIRMATION_SEEDS} new seeds, which show a difference of two standard deviations "
        f"with probability {POWER:.0%}:"
    )
    sizes = ["--budget", str(_BUDGET), "--confirm", str(CONFIRMATION_SEEDS)]
    yield shlex.join([*search, *sizes, "--study", study])


def _queue(space: Space, options: SearchOptions, seeds: Sequence[int] | None = None) -> Queue:
    """The queue of a search with a new study, without messages."""
    question = ask(space, None, seeds, options, watcher=terminal_watcher(shown=False))
    return read_queue(question, None)


def _time(queue: Queue, timer: TrialTimer) -> str:
    planned = estimate(queue, timer)
    minutes = (planned.seconds + planned.confirmation) / 60 if planned else 0
    if minutes >= 90:
        return f", about {minutes / 60:.1f} hours on this machine"
    whole = max(1, round(minutes))
    return f", about {whole} minute{'s'[: whole - 1]} on this machine"


def _size(whole: Queue, timer: TrialTimer, seconds: float) -> tuple[int, int | None, int]:
    """The numbers of trainings and rows with which a search takes about `seconds`.

    Returns:
        The trainings for sampled configurations; `data.limit`, or None for all rows; and the
        number of all rows.
    """
    space, config = whole.question.space, first_training(whole.question.space)
    time, slots = timer.trial(config), timer.slots
    rows = whole_training(config, whole.question.loader)[0] // config.optimizer.epochs
    grid = sum(each.method.takes_steps for each in space.configurations)
    seconds = max(0.0, seconds - RAY_S)
    budget = int(seconds / time.whole) * slots - grid
    if budget >= _LEAST:
        return min(budget, _MOST), None, rows
    without_rows = time.beside + time.end
    each = seconds / math.ceil((grid + _LEAST) / slots)
    limit = int(rows * (each - without_rows) / (time.whole - without_rows))
    limit = max(limit, _LEAST_BATCHES * config.optimizer.batch_size)
    digits = 10 ** (len(str(limit)) - 2)
    limit -= limit % digits
    return _LEAST, limit if limit < _NEARLY_ALL * rows else None, rows
