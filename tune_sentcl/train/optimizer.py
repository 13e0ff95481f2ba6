"""The optimizer and the learning-rate schedule of a config."""

import math
from collections.abc import Iterable
from typing import Any, assert_never

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from tune_sentcl.config import (
    AdamwConfig,
    LarsConfig,
    OptimizerBase,
    OptimizerConfig,
    SgdConfig,
)
from tune_sentcl.train import capture


class RawEpsilonAdamW(torch.optim.AdamW):
    r"""AdamW with epsilon added before the bias correction of the second moment.

    torch divides by $\sqrt{v / (1 - \beta_2^t)} + \epsilon$. transformers' own AdamW divided by
    $(\sqrt{v} + \epsilon) / \sqrt{1 - \beta_2^t}$. At the first step, this equals torch's formula
    with an epsilon 32 times as large; over some thousand steps the factor falls to 1. Weight decay
    is applied before the step, as in torch; SCL uses none. The arguments are torch's.

    References:
        huggingface/transformers 3.0.2, optimization.py.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for group in self.param_groups:  # `state_dict` includes what the groups hold
            group |= {"steps_taken": 0, "added_eps": group["eps"]}

    def step(self, closure: Any = None) -> Any:
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            group["steps_taken"] += 1
            correction = 1 - group["betas"][1] ** group["steps_taken"]
            group["eps"] = group["added_eps"] / math.sqrt(correction)
        return super().step(closure)


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
            params: Parameters or parameter groups, as for any torch optimizer.
            lr: The rate gamma.
            momentum: The momentum mu, in [0, 1).
            weight_decay: The decay beta, added to the gradient.
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
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, weight.grad, group)

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


def update(optimizer: Optimizer, weights: list[nn.Parameter], most: float | None) -> None:
    """Update weights by their gradients, clipped to a norm of `most`."""
    if most is not None:
        torch.nn.utils.clip_grad_norm_(weights, most)
    optimizer.step()


class GraphedUpdate:
    """`update` from CUDA graphs, one for each set of weights that have a gradient.

    The first update of a set runs without a graph, because it creates the moments. So does every
    update of RawEpsilonAdamW and Lars, which compute an epsilon or a rate on the host. The
    optimizer and its state are the same as without graphs.
    """

    def __init__(self, device: torch.device) -> None:
        """Make no graph yet."""
        self._rate = torch.zeros((), device=device)
        self._graphs: dict[tuple[bool, ...], torch.cuda.CUDAGraph | None] = {}
        self._gradients: dict[Tensor, Tensor] = {}  # the tensors from which graphs read gradients

    def __call__(
        self, optimizer: Optimizer, weights: list[nn.Parameter], most: float | None
    ) -> None:
        """See `update`.

        Raises:
            CaptureError: The capture failed; this process can no longer use its GPU.
        """
        key = tuple(weight.grad is not None for weight in weights)
        if type(optimizer) not in (torch.optim.AdamW, torch.optim.SGD) or key not in self._graphs:
            self._graphs[key] = None
            update(optimizer, weights, most)
            return
        self._place_gradients(weights)
        graph = self._graphs[key]
        if graph is None:
            with capture.undisturbed(self._rate.device):
                graph = capture.captured(lambda: self._update(optimizer, weights, most))
            self._graphs[key] = graph
        self._rate.fill_(optimizer.param_groups[0]["lr"])  # all groups have the same rate
        graph.replay()

    def _place_gradients(self, weights: list[nn.Parameter]) -> None:
        """Copy gradients into the graphs' memory if they are elsewhere, such as those of heads."""
        given = [(weight, weight.grad) for weight in weights if weight.grad is not None]
        moved = [(w, g) for w, g in given if g is not self._gradients.setdefault(w, g)]
        if moved:
            places = [self._gradients[weight] for weight, _ in moved]
            torch._foreach_copy_(places, [gradient for _, gradient in moved])
            for (weight, _), place in zip(moved, places, strict=True):
                weight.grad = place

    def _update(
        self, optimizer: Optimizer, weights: list[nn.Parameter], most: float | None
    ) -> None:
        """`update` with the learning rate as a tensor, which a graph needs."""
        groups = optimizer.param_groups
        before = [dict(group) for group in groups]
        for group in groups:
            group |= {"lr": self._rate, "capturable": True}
        try:
            update(optimizer, weights, most)
        finally:
            for group, values in zip(groups, before, strict=True):
                group.clear()
                group |= values


# A fused step passes over the weights once instead of a dozen times; torch has fused steps for
# these devices.
_FUSED_ON = ("cpu", "cuda")


def learning_rate_factor(config: OptimizerBase, step: int, total: int) -> float:
    """The factor of the learning rate at a step, numbered from 0, of `total` steps.

    The rate rises linearly over the warm-up. Step 0 has rate 0, as in the schedulers of all three
    papers. Then the rate stays (`constant`), or falls to 0 after the last step, linearly or along
    half a cosine.
    """
    warmup = warmup_steps(config, total)
    if step < warmup:
        return step / warmup
    done = (step - warmup) / max(1, total - warmup)
    match config.schedule:
        case "constant":
            return 1.0
        case "linear":
            return max(0.0, 1.0 - done)
        case "cosine":
            return (1.0 + math.cos(math.pi * min(1.0, done))) / 2


def warmup_steps(config: OptimizerBase, total: int) -> int:
    """The number of warm-up steps: int(warmup x total), or the steps of `warmup_epochs`."""
    if config.warmup_epochs is not None:
        return min(total, round(config.warmup_epochs * total / config.epochs))
    return int(config.warmup * total)


def build_optimizer(
    parameters: Iterable[nn.Parameter], config: OptimizerConfig, total: int
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """Make the optimizer of all parameters that require a gradient, and its schedule.

    Call `step` of both once per training step. Parameters of one dimension (biases and norms) get
    no weight decay.
    """
    weights = [weight for weight in parameters if weight.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [w for w in weights if w.ndim > 1]},
        {"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0},
    ]
    fused = all(weight.device.type in _FUSED_ON for weight in weights)
    optimizer = _optimizer([group for group in groups if group["params"]], config, fused)
    return optimizer, LambdaLR(optimizer, lambda step: learning_rate_factor(config, step, total))


def _optimizer(
    groups: list[dict[str, Any]], config: OptimizerConfig, fused: bool
) -> torch.optim.Optimizer:
    decay = config.weight_decay
    match config:
        case AdamwConfig():
            kind = RawEpsilonAdamW if config.eps_added == "raw" else torch.optim.AdamW
            return kind(groups, lr=config.lr, eps=config.eps, weight_decay=decay, fused=fused)
        case SgdConfig():
            nesterov = config.momentum > 0
            sgd = torch.optim.SGD(
                groups,
                lr=config.lr,
                momentum=config.momentum,
                weight_decay=decay,
                nesterov=nesterov,
                fused=fused,
            )
            if nesterov:
                sgd.register_step_pre_hook(_make_velocities)
            return sgd
        case LarsConfig():
            adapted = [{**g, "adapt": "weight_decay" not in g} for g in groups]
            return Lars(adapted, config.lr, config.momentum, decay, config.trust)
        case _ as unknown:
            assert_never(unknown)


def _make_velocities(sgd: Optimizer, *_: object) -> None:
    """Make all velocities, because torch's fused kernel fails if only some exist."""
    for group in sgd.param_groups:
        for weight in group["params"]:
            if weight.grad is not None and "momentum_buffer" not in sgd.state[weight]:
                sgd.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
