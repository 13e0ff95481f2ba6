"""AdamW as transformers had it in 2020, which the authors of SCL trained with."""

import math
from typing import Any

import torch


class RawEpsilonAdamW(torch.optim.AdamW):
    r"""AdamW with epsilon added before the bias correction of the second moment.

    torch divides by $\sqrt{v / (1 - \beta_2^t)} + \epsilon$, transformers' own AdamW divided by
    $(\sqrt{v} + \epsilon) / \sqrt{1 - \beta_2^t}$: the same with an epsilon that is 32 times as
    large at the first step and comes down over some thousand. Weight decay stays torch's, before
    the step; SCL has none. Arguments as for torch's.

    References:
        huggingface/transformers 3.0.2, optimization.py.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take over parameters, as torch's does."""
        super().__init__(*args, **kwargs)
        for group in self.param_groups:  # so that a state of the optimizer has them
            group |= {"steps_taken": 0, "added_eps": group["eps"]}

    def step(self, closure: Any = None) -> Any:
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            group["steps_taken"] += 1
            correction = 1 - group["betas"][1] ** group["steps_taken"]
            group["eps"] = group["added_eps"] / math.sqrt(correction)
        return super().step(closure)
