"""Lanes that compute together: their weights lie in one tensor a name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.rows.corpus import RowNumbers
from tune_sentcl.methods import AnyMethod
from tune_sentcl.methods.stackable import Stackable
from tune_sentcl.train.embedded import Embedded
from tune_sentcl.train.optimizer import learning_rate_factor
from tune_sentcl.train.stacked_rules import Rule, lane_norms, stacked_rule
from tune_sentcl.train.state import Moving

_CLIPPING = 1e-6  # what torch adds to the norm that it clips


@dataclass(eq=False)
class Lane:
    """One training of a stack.

    Attributes:
        method: Its encoder and its heads are trained.
        config: The trial.
        moving: What changes with a step.
        total: Updates that it makes.
        batches: The rows of the updates to come.
        number: Updates made.
        samples: Rows seen.
        until: The step at which the training wants to be asked before the next.
        moments: What the optimizer keeps, by weight and by torch's name for it, where lanes move
            together; else it is in `moving`.
        read: Gives the losses of the last update.
    """

    method: AnyMethod
    config: TrialConfig
    moving: Moving
    total: int
    batches: Iterator[RowNumbers]
    number: int = 0
    samples: int = 0
    until: int = 0
    moments: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    read: Callable[[], dict[str, float]] = field(default=dict)

    @cached_property
    def weights(self) -> dict[str, nn.Parameter]:
        """What is trained, by name."""
        return {
            f"{part}.{name}": weight
            for part, module in (("encoder", self.method.encoder), ("heads", self.method.heads))
            for name, weight in module.named_parameters()
        }

    def losses(self) -> dict[str, float]:
        """The losses of the last update; waits for the device."""
        return self.read()


class Deck:
    """Lanes whose weights lie in one tensor a name.

    Padded, there is room for the widest of them, and they move together, by the optimizer's rule
    for many. Else all have one shape, and each moves by its own optimizer: what saves launches on
    a GPU costs a CPU a dozen passes over weights that a fused optimizer passes once.
    """

    def __init__(self, embedded: Embedded, first: Lane, *, pads: bool) -> None:
        """A deck of one lane.

        Args:
            embedded: Gives what the steps read.
            first: The lane.
            pads: Whether others may have other shapes.
        """
        self._embedded = embedded
        self._rule = stacked_rule(first.config.optimizer) if pads else None
        self.lanes: list[Lane] = []
        self._weights: dict[str, Tensor] = {}
        self._moments: dict[str, list[Tensor]] = {}
        self._stale = False
        self.add(first)

    def add(self, lane: Lane) -> None:
        """Take in a lane, whose weights and moments are what they are now."""
        if self._rule is not None:
            state = lane.moving.optimizer.state
            for name, weight in lane.weights.items():
                before = state.get(weight, {})
                lane.moments[name] = {
                    m: _moment(before.get(m), weight) for m in self._rule.moments
                }
        self.lanes.append(lane)
        self._stale = True

    def remove(self, lane: Lane) -> None:
        """Let a lane go, with weights of its own."""
        for weight in lane.weights.values():
            weight.data, weight.grad = weight.data.clone(), None
        lane.moments = {}
        self.lanes.remove(lane)
        self._stale = True

    def step(self, batches: Mapping[Lane, RowNumbers]) -> None:
        """One update of some of the lanes, all with batches of one length."""
        if self._stale:
            self._gather()
        lanes = list(batches)
        some = len(lanes) < len(self.lanes)
        places = [self.lanes.index(lane) for lane in lanes] if some else None
        weights = {name: _chosen(tensor, places) for name, tensor in self._weights.items()}
        numbers = self._numbers(lanes)
        losses, slopes = self._slopes(lanes, np.stack(list(batches.values())), weights, numbers)
        if self._rule is None:
            _move_each(lanes, slopes)
        else:
            self._move_together(self._rule, places, weights, slopes, numbers)
        _tell(lanes, losses)

    def _slopes(
        self,
        lanes: Sequence[Lane],
        rows: NDArray[np.int64],
        weights: Mapping[str, Tensor],
        numbers: Mapping[str, Tensor],
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Each lane's losses, and the gradient of its loss by its weights."""
        stackable = stackable_of(lanes[0].method)
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
        knobs = {name: numbers[name][:, None, None] for name in stackable.lane_knobs}
        losses = stackable.lane_losses(leaves, self._embedded.take(rows), knobs)
        # The sum's gradient by a lane's weights is that of the lane's own loss.
        found = torch.autograd.grad(losses["loss"].sum(), list(leaves.values()))
        told = {name: values.detach() for name, values in losses.items()}
        return told, dict(zip(leaves, found, strict=True))

    @torch.no_grad()
    def _move_together(
        self,
        rule: Rule,
        places: list[int] | None,
        weights: Mapping[str, Tensor],
        slopes: Mapping[str, Tensor],
        numbers: Mapping[str, Tensor],
    ) -> None:
        if "max_grad_norm" in numbers:
            _clip(slopes, numbers["max_grad_norm"])
        for name, weight in weights.items():
            moments = [_chosen(moment, places) for moment in self._moments[name]]
            fitting = {n: _beside(weight, values) for n, values in numbers.items()}
            # As in build_optimizer, biases and norms have no decay.
            rule.update(weight, slopes[name], moments, fitting, weight.ndim > 2)
            if places is not None:
                self._weights[name][places] = weight
                for own, moved in zip(self._moments[name], moments, strict=True):
                    own[places] = moved

    def _numbers(self, lanes: Sequence[Lane]) -> dict[str, Tensor]:
        """What lanes may differ in, as numbers of each at the step to come, on their device."""
        told = [self._numbers_of(lane) for lane in lanes]
        if any("max_grad_norm" in own for own in told):
            told = [{"max_grad_norm": float("inf"), **own} for own in told]
        names = list(told[0])
        moved = torch.tensor([[own[name] for own in told] for name in names], dtype=torch.float32)
        return dict(zip(names, moved.to(self._embedded.device), strict=True))

    def _numbers_of(self, lane: Lane) -> dict[str, float]:
        config = lane.config.optimizer
        knobs = stackable_of(lane.method).lane_knobs
        own = {name: float(getattr(lane.config.method, name)) for name in knobs}
        if self._rule is None:
            return own
        rate = config.lr * learning_rate_factor(config, lane.number, lane.total)
        own |= self._rule.numbers(config, lane.number + 1, rate)
        if config.max_grad_norm is not None:
            own["max_grad_norm"] = config.max_grad_norm
        return own

    def _gather(self) -> None:
        """Bring the lanes' weights and moments together, and make the lanes' own views of them."""
        own = [lane.weights for lane in self.lanes]
        self._weights, self._moments = {}, {}
        for name in own[0]:
            parts = [weights[name].data for weights in own]
            self._weights[name], views = _together(parts)
            for weights, view in zip(own, views, strict=True):
                weights[name].data = view
            self._moments[name] = []
            for moment in () if self._rule is None else self._rule.moments:
                stacked, views = _together([lane.moments[name][moment] for lane in self.lanes])
                self._moments[name].append(stacked)
                for lane, view in zip(self.lanes, views, strict=True):
                    lane.moments[name][moment] = view
        self._stale = False


def stackable_of(method: AnyMethod) -> Stackable:
    """A method, as one whose trials can be lanes.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(method, Stackable):
        raise TypeError(f"method {method.config.name} has no lanes")
    return method


def _move_each(lanes: Sequence[Lane], slopes: Mapping[str, Tensor]) -> None:
    """What `train` does with a gradient, for each lane by itself."""
    for place, lane in enumerate(lanes):
        weights = lane.weights
        for name, weight in weights.items():
            weight.grad = slopes[name][place]
        most = lane.config.optimizer.max_grad_norm
        if most is not None:
            torch.nn.utils.clip_grad_norm_(weights.values(), most)
        lane.moving.optimizer.step()
        lane.moving.schedule.step()


def _chosen(stacked: Tensor, places: list[int] | None) -> Tensor:
    return stacked if places is None else stacked[places]


def _moment(before: Tensor | None, weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if before is None else before.detach().to(weight.device)


def _together(parts: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Tensors as slices of one that has room for the largest, zeros elsewhere; and the slices."""
    shape = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
    stacked = parts[0].new_zeros(len(parts), *shape)
    views = [
        stacked[place][tuple(slice(size) for size in part.shape)]
        for place, part in enumerate(parts)
    ]
    for view, part in zip(views, parts, strict=True):
        view.copy_(part)
    return stacked, views


def _beside(weight: Tensor, values: Tensor) -> Tensor:
    """A number a lane, shaped to go with their weights."""
    return values.view(-1, *(1,) * (weight.ndim - 1))


def _clip(slopes: Mapping[str, Tensor], most: Tensor) -> None:
    """What `torch.nn.utils.clip_grad_norm_` does, for each lane by itself."""
    norms = torch.stack([lane_norms(slope).flatten() for slope in slopes.values()])
    factors = (most / (torch.linalg.vector_norm(norms, dim=0) + _CLIPPING)).clamp(max=1.0)
    factors = torch.where(most.isinf(), 1.0, factors)
    for slope in slopes.values():
        slope.mul_(_beside(slope, factors))


def _tell(lanes: Sequence[Lane], losses: Mapping[str, Tensor]) -> None:
    """Give each lane its losses, which leave the device once one of them is asked for."""
    told: dict[str, list[float]] = {}

    def read(place: int) -> dict[str, float]:
        if not told:
            told.update((name, values.tolist()) for name, values in losses.items())
        return {name: values[place] for name, values in told.items()}

    for place, lane in enumerate(lanes):
        lane.read = partial(read, place)
