"""The state of a training between two steps, from which it resumes to the bit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.trained import restore_trained, trained_state


@dataclass(frozen=True)
class TrainingState:
    """The state of a training between two steps, in values that safetensors and JSON can hold.

    Attributes:
        number: Updates made.
        samples: Rows seen.
        tensors: Trained weights, the optimizer's moments and torch's random states, by name.
        plain: All other values: the optimizer's groups, the schedule, the drawing generator, and
            the arithmetic of training.
    """

    number: int
    samples: int
    tensors: dict[str, Tensor]
    plain: dict[str, Any]


@dataclass(frozen=True)
class TrainingRun:
    """The objects that a training step changes.

    Attributes:
        encoder: The encoder, which is kept after training.
        heads: The layers that only training uses.
        optimizer: The optimizer; it holds the moments, and the parameter groups with their rates.
        schedule: The schedule, which sets the rates.
        draws: The generator for `Method.draw`; dropout draws from torch's global generators.
    """

    encoder: nn.Module
    heads: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: LRScheduler
    draws: np.random.Generator

    def state(
        self, number: int, samples: int, after: Mapping[str, Any] | None = None
    ) -> TrainingState:
        """A copy of the current state, on the CPU.

        Args:
            number: Updates made.
            samples: Rows seen.
            after: The state of `draws` after the last used batch, because a thread may have drawn
                more batches; None: the current state of `draws`.
        """
        tensors: dict[str, Tensor] = {"random.cpu": torch.get_rng_state()}
        for device in self._gpus():
            tensors["random.cuda"] = torch.cuda.get_rng_state(device)
        # The state of the heads is saved whole, because `Method.after_step` may change tensors
        # that have no gradient.
        heads = self.heads.state_dict()
        for part, tensors_of_part in (("encoder", trained_state(self.encoder)), ("heads", heads)):
            tensors |= {f"{part}.{name}": value for name, value in tensors_of_part.items()}
        optimizer = self.optimizer.state_dict()
        plain: dict[str, dict[str, Any]] = {}
        for index, values in optimizer["state"].items():
            for name, value in values.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{name}"] = value
                else:
                    plain.setdefault(str(index), {})[name] = value
        return TrainingState(
            number,
            samples,
            {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()},
            {
                "optimizer": plain,
                "groups": optimizer["param_groups"],
                "schedule": self.schedule.state_dict(),
                "draws": self.draws.bit_generator.state if after is None else after,
                "arithmetic": getattr(self.encoder, "arithmetic", "fp32"),
            },
        )

    def restore(self, state: TrainingState) -> None:
        """Set all objects to a state.

        Raises:
            KeyError, RuntimeError, ValueError: The state is from another training.
        """
        restore_trained(self.encoder, tensors_of("encoder", state.tensors))
        self.heads.load_state_dict(tensors_of("heads", state.tensors))
        values: dict[int, dict[str, Any]] = {
            int(index): dict(numbers) for index, numbers in state.plain["optimizer"].items()
        }
        for name, value in tensors_of("optimizer", state.tensors).items():
            index, _, key = name.partition(".")
            values.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict({"state": values, "param_groups": state.plain["groups"]})
        self.schedule.load_state_dict(state.plain["schedule"])
        self.draws.bit_generator.state = state.plain["draws"]
        if isinstance(self.encoder, Encoder):
            # On another device, `precision = auto` could otherwise choose another arithmetic than
            # before.
            self.encoder.arithmetic = state.plain["arithmetic"]
        torch.set_rng_state(state.tensors["random.cpu"])
        if "random.cuda" in state.tensors:
            # A state that was saved on a CPU has no state of a GPU's generator.
            for device in self._gpus():
                torch.cuda.set_rng_state(state.tensors["random.cuda"], device)

    def _gpus(self) -> Iterator[torch.device]:
        devices = {weight.device for weight in self.encoder.parameters()}
        yield from (device for device in devices if device.type == "cuda")


def tensors_of(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one part: of `PART.NAME`, the key becomes NAME."""
    start = f"{part}."
    return {n.removeprefix(start): value for n, value in tensors.items() if n.startswith(start)}
