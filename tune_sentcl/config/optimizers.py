"""The optimizers' hyperparameters: one class per optimizer, and the union of the classes."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tune_sentcl.config.tables import Frozen

Precision = Literal["fp32", "tf32", "bf16", "auto"]
"""The values of `optimizer.precision`."""


class OptimizerBase(Frozen):
    """The common hyperparameters of all optimizers: learning rate, schedule, and batches."""

    lr: float = Field(2e-5, gt=0, description="learning rate after the warm-up, above 0")
    batch_size: int = Field(64, ge=1, description="rows per step")
    epochs: int = Field(1, ge=1, description="passes over the rows")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description="learning rate after the warm-up: constant (SCL's code), or decreasing to 0, "
        "linear or cosine",
    )
    warmup: float = Field(
        0.1, ge=0, lt=1, description="share of the steps over which the rate rises from 0"
    )
    warmup_epochs: float | None = Field(
        None, ge=0, description="warm up over this many epochs; unset: `warmup` applies"
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="weight decay, which is decoupled in adamw and part of the gradient in sgd "
        "and lars; biases and norms are not decayed",
    )
    max_grad_norm: float | None = Field(
        None,
        gt=0,
        description="largest norm of the gradient, to which longer gradients are clipped; unset: "
        "no clipping",
    )
    precision: Precision = Field(
        "fp32",
        description="precision of matrix products in training. tf32 rounds their inputs to 10 "
        "bits, on NVIDIA GPUs; bf16 runs the encoder's forward pass under autocast; auto: bf16 on "
        "GPUs of compute capability 8.0 or more, fp32 elsewhere",
    )


class AdamwConfig(OptimizerBase):
    """AdamW; the default if a table has no name."""

    name: Literal["adamw"] = Field(
        "adamw", description="the update rule; sgd has Nesterov momentum"
    )
    eps: float = Field(1e-6, gt=0, description="epsilon of adamw")
    eps_added: Literal["corrected", "raw"] = Field(
        "corrected",
        description="add epsilon to the root of the second moment after the bias correction, as "
        "torch does, or before the correction (raw), as transformers did in 2020",
    )


class SgdConfig(OptimizerBase):
    """Gradient descent with Nesterov's momentum."""

    name: Literal["sgd"]
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd and lars")


class LarsConfig(OptimizerBase):
    """LARS, the optimizer of SimCLR."""

    name: Literal["lars"]
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd and lars")
    trust: float = Field(1e-3, gt=0, description="trust coefficient of lars (eta)")


def _named(table: object) -> object:
    if isinstance(table, Mapping) and "name" not in table:
        return {**table, "name": "adamw"}
    return table


OptimizerConfig = Annotated[
    AdamwConfig | SgdConfig | LarsConfig, Field(discriminator="name"), BeforeValidator(_named)
]
