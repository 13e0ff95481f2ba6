"""Where the first rung lies, unless the user says: where every trial has been evaluated once."""

from tune_sentcl.config import TrialConfig
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.rungs import Spacing
from tune_sentcl.space import Space
from tune_sentcl.train import check_batches, count_steps
from tune_sentcl.trial import InputLoader

_GROUPS_FILL = 0.9  # premise groups stay whole, so that batches of them are seldom full


def spacing(space: Space, options: SearchOptions, loader: InputLoader) -> Spacing | None:
    """The rungs that a search's options name; None where nothing is stopped early.

    Without `grace` the first rung lies where the slowest configuration, in rows, has its first
    evaluation point. One that has none before its end is never stopped, and does not count.

    Raises:
        BadInputError: A configuration's inputs cannot be read.
    """
    if options.scheduler == "none":
        return None
    grace = options.grace or _first_points(space, loader)
    return Spacing(grace, options.reduction, options.max_rows)


def most_rows(space: Space, loader: InputLoader) -> int:
    """Rows that the longest trial of the grid sees."""
    return max(
        _rows(config, loader, count_steps(loader.load(config).corpus, config))
        for config in space.configurations
    )


def _first_points(space: Space, loader: InputLoader) -> int:
    found = [1]
    for config in space.configurations:
        size = _highest(space, "optimizer.batch_size", config.optimizer.batch_size)
        every = _highest(space, "evaluation.every", config.evaluation.every)
        largest = config.optimizer.model_copy(update={"batch_size": size})
        slowest = config.model_copy(update={"optimizer": largest})
        if count_steps(loader.load(config).corpus, slowest) > every:
            found.append(_rows(slowest, loader, every))
    return max(found)


def _highest(space: Space, key: str, value: int) -> int:
    """The largest value that the sampler may draw for a knob, or the grid's."""
    for item in space.ranges:
        if item.key == key:
            value = max(value, int(max(item.choices) if item.kind == "choice" else item.high))
    return value


def _rows(config: TrialConfig, loader: InputLoader, steps: int) -> int:
    """Rows seen after so many steps; of batches that are not all full, a little less."""
    corpus, size = loader.load(config).corpus, config.optimizer.batch_size
    epochs, rest = divmod(steps, max(1, check_batches(corpus, config)))
    dropped = len(corpus) % size if config.data.drop_last and len(corpus) > size else 0
    fill = _GROUPS_FILL if "groups" in config.data.order else 1.0
    return epochs * (len(corpus) - dropped) + min(int(rest * size * fill), len(corpus))
