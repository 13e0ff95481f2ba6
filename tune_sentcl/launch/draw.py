"""The next configuration that nobody has tried: what the sampler wishes, or the nearest to it."""

from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.trial import TrialState

from tune_sentcl.launch.room import Place, Rooms
from tune_sentcl.launch.sampling import suggest
from tune_sentcl.space import Space

# Asking a few times more finds better points than drawing blindly as soon as one is held.
_ASKS = 4


def propose(
    study: optuna.Study, space: Space, rooms: Rooms, new: Callable[[Place], bool]
) -> tuple[optuna.Trial, Place] | None:
    """Ask the sampler for a place that is new; no ask of it is in vain.

    A place that is held already is told as failed, which no sampler learns from: telling its value
    once more would anchor the sampler to it. After a few of them the room gives one of its points
    that are left. From a room without points the search moves to another one, whose other knobs
    the sampler chooses itself: else one that likes the empty room best would only draw at random.

    Args:
        study: Where the sampler is asked; the trial that is returned runs in it.
        space: What the places are places of.
        rooms: What is left.
        new: Whether a place stands for a configuration that is not held.

    Returns:
        The sampler's trial and its place; None where nothing is left to propose.
    """
    left = rooms.left()
    wish: Mapping[str, Any] = dict(left[0]) if len(left) == 1 else {}
    repeats = 0
    while not rooms.exhausted:
        trial, place = ask(study, space, wish)
        if new(place):
            return trial, place
        study.tell(trial, state=TrialState.FAIL)
        repeats += 1
        key = rooms.room_of(place)
        if key in rooms.left():
            if repeats < _ASKS:
                continue
            point = rooms.draw(key, lambda place: not new(place))
            if point is not None:
                return ask(study, space, point)
        wish, repeats = dict(rooms.another() or ()), 0
    return None


def ask(study: optuna.Study, space: Space, wish: Mapping[str, Any]) -> tuple[optuna.Trial, Place]:
    """Ask for a trial of which some knobs are given; Optuna records it as any other."""
    if wish:
        study.enqueue_trial(dict(wish))
    trial = study.ask()
    return trial, suggest(trial, space)
