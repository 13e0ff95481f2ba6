"""The config of one trial: frozen, and validated as a whole."""

from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from tune_sentcl.config.embedding_methods import MnrConfig
from tune_sentcl.config.optimizers import AdamwConfig, OptimizerConfig
from tune_sentcl.config.registry import MethodConfig, is_trainer
from tune_sentcl.config.sections import (
    AUTO_FALLBACKS,
    DataConfig,
    EncoderConfig,
    EvaluationConfig,
)
from tune_sentcl.config.tables import Frozen, flatten

_OWNED_BY_TRAINERS: dict[str, Frozen] = {
    "encoder": EncoderConfig(),
    "data": DataConfig(),
    "optimizer": AdamwConfig(),
    "evaluation": EvaluationConfig(),
}
_POINTS = ("every", "select")


class TrialConfig(Frozen):
    """One trial: everything that decides what is trained and measured, including the seed."""

    method: MethodConfig
    encoder: EncoderConfig = EncoderConfig()
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = AdamwConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: int = Field(0, ge=0, description="seed of every random stream of the trial")

    @model_validator(mode="before")
    @classmethod
    def _without_suites_by_default(cls, values: Any) -> Any:
        """Leave out SentEval's tasks by default, because a trainer has its own evaluator."""
        if not isinstance(values, dict):
            return values
        method, evaluation = (values.get(key, {}) for key in ("method", "evaluation"))
        both = isinstance(method, dict) and isinstance(evaluation, dict)
        if both and is_trainer(str(method.get("name"))):
            return {**values, "evaluation": {"suites": (), **evaluation}}
        return values

    @model_validator(mode="after")
    def _a_trainer_owns_its_settings(self) -> Self:
        if not self.method.is_trainer:
            return self
        for name, usual in _OWNED_BY_TRAINERS.items():
            table = getattr(self, name)
            for key in _POINTS if name == "evaluation" else type(usual).model_fields:
                value, default = getattr(table, key, None), getattr(usual, key)
                # A study holds the resolved value of an `auto`, which counts as the default, too.
                if value not in (default, AUTO_FALLBACKS.get(f"{name}.{key}", default)):
                    rule = (
                        "must not be set with method {name}: its function chooses rows, encoder, "
                    )
                    rule += "optimizer and evaluation points"
                    of = {"name": self.method.name, "value": value, "move": "Remove the key."}
                    raise PydanticCustomError(f"{name}.{key}", rule, of)
        return self

    @model_validator(mode="after")
    def _order_fits_the_rows(self) -> Self:
        labeled = self.method.rows == "labeled_pairs"
        torn, whole = ("shuffled", "distinct"), ("groups", "shuffled_groups")
        if self.method.trains_on_rows and self.data.order in (torn if labeled else whole):
            legal = f"file, {' or '.join(whole if labeled else torn)}"
            raise PydanticCustomError(
                "data.order",
                "Input should be {legal} for a method that reads {rows}",
                {
                    "legal": legal,
                    "rows": "labeled pairs" if labeled else "other rows than labeled pairs",
                    "value": self.data.order,
                },
            )
        return self

    @model_validator(mode="after")
    def _needs_stage_objective(self) -> Self:
        has_scores = self.method.is_trainer or "sts" in self.evaluation.suites
        if not has_scores and not self.evaluation.own:
            raise PydanticCustomError(
                "evaluation.suites",
                "Input should be a list with sts, so that STS-B dev is the stage objective; "
                "otherwise evaluation.own should name custom tasks",
                {"value": self.evaluation.suites},
            )
        return self

    @model_validator(mode="after")
    def _widths_are_scored_as_they_are_trained(self) -> Self:
        method = self.method
        if isinstance(method, MnrConfig) and method.dims and method.head == "dropped":
            raise PydanticCustomError(
                "method.head",
                "Input should be none or kept if method.dims are trained",
                {"value": method.head},
            )
        return self

    def nested(self) -> dict[str, Any]:
        """The whole config as nested tables with the papers' names, including defaults."""
        return self.model_dump(mode="json", by_alias=True)

    def dotted(self) -> dict[str, Any]:
        """The whole config as dotted keys, including defaults."""
        return dict(flatten(self.nested()))
