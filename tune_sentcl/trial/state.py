"""A running trial at a step boundary, as files that another worker can go on from."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tune_sentcl.config import TrialConfig, flatten, parse_dotted
from tune_sentcl.errors import ConfigError, Fault, StudyError
from tune_sentcl.objective import Objective
from tune_sentcl.store.provenance import library_versions
from tune_sentcl.store.rows import CurvePoint
from tune_sentcl.store.study import Study
from tune_sentcl.train.state import TrainingState, tensors_of

_TENSORS, _REST = "state.safetensors", "state.json"
_STEP = "step"
_VERSIONS = ("tune_sentcl", "torch", "transformers")


def made_for(config: TrialConfig, compared_by: Objective) -> str:
    """All that a state depends on beside its trial's id: points, objective, versions."""
    versions = {name: library_versions()[name] for name in _VERSIONS}
    return json.dumps([config.model_dump_json(by_alias=True), str(compared_by), versions])


def config_of(study: Study, trial_id: str) -> TrialConfig | None:
    """Which trial a study's state is of, without its tensors; None where it does not say."""
    rest = study.state_file(trial_id, _REST)
    try:
        config, *_ = json.loads(json.loads(rest or b"")["made_for"])
        return parse_dotted(dict(flatten(json.loads(config))), f"the state of {trial_id}")
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError):
        return None  # damaged, or of another version


@dataclass(frozen=True)
class TrialState:
    """All that a trial is at a step boundary.

    Attributes:
        made_for: From `made_for`; only an equal trial can go on from it.
        training: The loop's part.
        points: Step, rows and score of each evaluation point behind it.
        curves: So far.
        best: The best development score and its weights, where those are kept.
        costs: Seconds spent, under the names of the trials table's columns.
    """

    made_for: str
    training: TrainingState
    points: Sequence[tuple[int, int, float]] = ()
    curves: Sequence[CurvePoint] = ()
    best: tuple[float, dict[str, Tensor]] | None = None
    costs: dict[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Fill an empty folder: tensors as safetensors, the rest as JSON."""
        tensors = {f"training.{name}": value for name, value in self.training.tensors.items()}
        if self.best is not None:
            tensors |= {f"best.{name}": value.cpu() for name, value in self.best[1].items()}
        # Of two files that are read one after the other both must be of this state.
        step = str(self.training.number)
        save_file(tensors, folder / _TENSORS, metadata={_STEP: step})
        rest = {
            "made_for": self.made_for,
            "number": self.training.number,
            "samples": self.training.samples,
            "parts": self.training.parts,
            "training": self.training.plain,
            "points": self.points,
            "curves": [asdict(point) for point in self.curves],
            "best": None if self.best is None else self.best[0],
            "costs": self.costs,
        }
        (folder / _REST).write_text(json.dumps(rest), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `write` has written.

        Raises:
            StudyError: It is damaged.
        """
        try:
            rest: dict[str, Any] = json.loads((folder / _REST).read_text(encoding="utf-8"))
            with safe_open(folder / _TENSORS, framework="pt") as file:
                step = (file.metadata() or {}).get(_STEP)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if step != str(rest["number"]):
                raise ValueError(f"its weights are of step {step}, the rest of {rest['number']}")
            best = rest["best"]
            return cls(
                rest["made_for"],
                TrainingState(
                    rest["number"],
                    rest["samples"],
                    rest["parts"],
                    tensors_of("training", tensors),
                    rest["training"],
                ),
                [(step, rows, dev) for step, rows, dev in rest["points"]],
                [CurvePoint(**point) for point in rest["curves"]],
                None if best is None else (best, tensors_of("best", tensors)),
                rest["costs"],
            )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            rule = f"must be the whole state of a trial ({error})"
            move = "Delete it; the trial then begins anew."
            raise StudyError(Fault(str(folder), "", "", rule, move)) from error
