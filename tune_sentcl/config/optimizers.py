"""How the weights move."""

from typing import Literal

from pydantic import Field

from tune_sentcl.config.frozen import Frozen


class OptimizerConfig(Frozen):
    """How the weights move."""

    name: Literal["adamw", "sgd", "lars"] = Field(
        "adamw", description="the update rule; sgd is Nesterov's"
    )
    lr: float = Field(2e-5, gt=0, description="learning rate after the warm-up, above 0")
    batch_size: int = Field(64, ge=1, description="rows a step")
    epochs: int = Field(1, ge=1, description="passes over the rows")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description="after the warm-up: constant (SCL's code), or linear or cosine to 0",
    )
    warmup: float = Field(
        0.1, ge=0, lt=1, description="share of the steps over which the rate climbs from 0"
    )
    warmup_epochs: float | None = Field(
        None, ge=0, description="climb over so many epochs instead; unset: `warmup` counts"
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="decoupled in adamw, part of the gradient in sgd and lars; biases and norms "
        "have none",
    )
    eps: float = Field(1e-6, gt=0, description="epsilon of adamw")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd and lars")
    trust: float = Field(1e-3, gt=0, description="trust coefficient of lars (eta)")
    max_grad_norm: float | None = Field(
        None, gt=0, description="clip the gradient's norm to this; unset: no clipping"
    )
    precision: Literal["fp32", "bf16"] = Field(
        "fp32", description="bf16 runs the encoder's forward pass under autocast"
    )
