"""The table of a search's stages, which `plan` and `search` print first."""

from collections.abc import Iterator
from fractions import Fraction

from tune_sentcl.tuning.halving import Stages
from tune_sentcl.tuning.prepare import PreparedSearch
from tune_sentcl.tuning.training_length import whole_training
from tune_sentcl.watch.clock import clock

_COLUMNS = ("sampled", "train to", "rows", "trainings", "time")


def stages_table(prepared: PreparedSearch, seconds: float | None) -> Iterator[str]:
    """The stages of sampled configurations, and the trials beside them; nothing without stages.

    Args:
        prepared: The search, after `PreparedSearch.resume_from`.
        seconds: Seconds of a whole training divided by the trials at a time; None if unknown.
    """
    proposals = prepared.proposals
    if proposals.stages is None:
        return
    trained = (one for one in prepared.space.configurations if one.method.takes_steps)
    rows = next((whole_training(one, prepared.loader)[0] for one in trained), 0)
    lines = [_COLUMNS, *_lines(proposals.stages, rows, seconds)]
    if seconds is None:
        lines = [line[:-1] for line in lines]
    rule = "all run each stage" if proposals.stages.keeps_all else "the best of each go on"
    yield f"sampled configurations by stage; {rule}:"
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, until, *numbers in lines:
        cells = [name.rjust(widths[0]), until.ljust(widths[1])]
        cells += [text.rjust(width) for text, width in zip(numbers, widths[2:], strict=True)]
        yield "  ".join(cells).rstrip()
    if count := len(proposals.configurations.grid):
        seeds = len(proposals.seeds)
        each = "" if seeds == 1 else f", each with {seeds} seeds"
        yield f"beside them {count} of the grid run whole{each}"


def _lines(stages: Stages, rows: int, seconds: float | None) -> Iterator[tuple[str, ...]]:
    for stage, (size, each) in enumerate(zip(stages.sizes, stages.costs, strict=True)):
        share, seeds = stages.share(stage), stages.seeds(stage)
        until = f"{Fraction(share).limit_denominator(1000)} of the rows"
        if share == 1:
            until = "the end" if seeds == 1 else f"the end, {seeds} seeds"
        cost = size * each
        taken = "" if seconds is None else clock(cost * seconds)
        yield f"{size:,}", until, f"{round(share * rows):,}", f"{cost:.1f}", taken
    taken = "" if seconds is None else clock(stages.cost * seconds)
    yield "", "all", "", f"{stages.cost:.1f}", taken
