"""An average of several trials' weights, chosen greedily (Wortsman et al., ICML 2022).

The greedy soup (their Recipe 1): the members stand in the order of their scores; the first is the
soup, and each further one stays in the average if that scores no worse with it than without. So
the soup is never worse on what it is chosen by than its best member. That score must be one of a
dev split: who picks averages by it has chosen by it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.model.encoder import Encoder

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Tried:
    """What became of one member that was offered to a soup.

    Attributes:
        trial_id: Its trial.
        value: What the average with it scored, times 100; None where it had no value.
        taken: Whether it stayed.
    """

    trial_id: str
    value: float | None
    taken: bool


def misfit(one: Encoder, other: Encoder) -> str | None:
    """Why the weights of two encoders cannot be averaged; None where they can."""
    if (one.pooling, one.max_length) != (other.pooling, other.max_length):
        return "it pools otherwise or reads other lengths"
    if one.prefixes != other.prefixes:
        return "it puts other texts before sentences"
    if one.tokenizer.get_vocab() != other.tokenizer.get_vocab():
        return "it has another tokenizer"
    activations = [[layer.activation for layer in each.tail.layers] for each in (one, other)]
    shapes = [{name: w.shape for name, w in each.state_dict().items()} for each in (one, other)]
    if activations[0] != activations[1] or shapes[0] != shapes[1]:
        return "it has another architecture"
    return None


def greedy(
    encoder: Encoder,
    best: float,
    rest: Iterable[tuple[str, Weights]],
    score: Callable[[Encoder], float | None],
) -> list[Tried]:
    """Average an encoder with the weights of others, those that make it no worse.

    Args:
        encoder: The best member; it becomes the soup.
        best: What it scores.
        rest: The other members with their weights, the best first; each is read once.
        score: What a soup is chosen by, times 100; None: it has no value.

    Returns:
        The others in the order in which they were tried.
    """
    tried = []
    # In double precision, so that equal members average to themselves.
    total = {name: weight.double() for name, weight in _own(encoder).items()}
    count = 1
    for name, weights in rest:
        offered = {key: value + weights[key].to(value) for key, value in total.items()}
        _fill(encoder, offered, count + 1)
        value = _scored(encoder, score)
        taken = value is not None and value >= best
        tried.append(Tried(name, value, taken))
        if taken and value is not None:
            total, count, best = offered, count + 1, value
    _fill(encoder, total, count)
    return tried


def _own(encoder: Encoder) -> dict[str, Tensor]:
    """The weights that can be averaged; counters and the like stay the first member's."""
    found = encoder.state_dict().items()
    return {name: weight for name, weight in found if weight.is_floating_point()}


def _fill(encoder: Encoder, total: Weights, count: int) -> None:
    with torch.no_grad():
        for name, weight in _own(encoder).items():
            weight.copy_(total[name] / count)


def _scored(encoder: Encoder, score: Callable[[Encoder], float | None]) -> float | None:
    try:
        return score(encoder)
    except NonFiniteError:  # opposite weights may cancel each other
        return None
