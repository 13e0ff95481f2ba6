"""LARS, the optimizer of SimCLR, whose setup CLSR follows."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Lars(Optimizer):
    r"""Layer-wise adaptive rates with classic momentum.

    For a weight w with gradient g, $g \leftarrow g + \beta w$ and the trust ratio
    $r = \eta \|w\| / \|g\|$ (1 where a norm is 0), then $v \leftarrow \mu v + \gamma r g$ and
    $w \leftarrow w - v$. The rate is inside the momentum, as in SimCLR's code. Parameter groups
    with `adapt` false (biases, norms) have r = 1; give them no weight decay.

    References:
        You, Gitman and Ginsburg, arXiv 1708.03888; Chen et al., "SimCLR", ICML 2020.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 1e-3,
    ) -> None:
        """Make the optimizer.

        Args:
            params: As for every torch optimizer.
            lr: The rate gamma.
            momentum: The momentum mu, in [0, 1).
            weight_decay: The decay beta, part of the gradient.
            trust: The trust coefficient eta.
        """
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "adapt": True,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, weight.grad, group)
        return loss

    def _update(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        gradient = gradient.add(weight, alpha=group["weight_decay"])
        if group["adapt"]:
            size, slope = weight.norm(), gradient.norm()
            ratio = torch.where((size > 0) & (slope > 0), group["trust"] * size / slope, 1.0)
            gradient = gradient * ratio
        state = self.state[weight]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(weight)
        velocity = state["velocity"]
        velocity.mul_(group["momentum"]).add_(gradient, alpha=group["lr"])
        weight.sub_(velocity)
