"""Conversion of nested tables and dotted keys; the strict, frozen base class of all tables."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from tune_sentcl.errors import ConfigError, Fault

Values = Mapping[str, Any]
"""Values by their dotted keys, or tables by their names."""


_WHOLE = ("data.columns",)
"""Keys whose value is itself a table."""


def nest(values: Values, where: str) -> dict[str, Any]:
    """Turn dotted keys into nested tables.

    Raises:
        ConfigError: A key is both a value and a table.
    """
    root: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        table = root
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                move = "Remove one of the two keys."
                raise ConfigError(
                    Fault(
                        where,
                        key=key,
                        value=shown(value),
                        rule=f"{part} is a value, not a table",
                        move=move,
                    )
                )
        table[last] = value
    return root


def flatten(table: Values, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield pairs of dotted key and value of nested tables; the reverse of `nest`."""
    for key, value in table.items():
        if isinstance(value, dict) and f"{prefix}{key}" not in _WHOLE:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def shown(value: object) -> str:
    """A value in TOML's notation for messages, at most 80 characters long."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, Mapping):
        items = ", ".join(f"{key} = {shown(item)}" for key, item in value.items())
        text = f"{{ {items} }}" if items else "{}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(shown, value))}]"
    else:
        text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Frozen(BaseModel):
    """Base of the config's tables."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _fits_a_column(cls, value: object) -> object:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise PydanticCustomError("too_long", "Input should be a number of at most 18 digits")
        return value


Rows = Literal[
    "labeled_pairs", "sentences", "positive_pairs", "graded_pairs", "triplets", "nothing"
]
"""The kinds of rows that a method reads.

labeled_pairs: premises with hypotheses and labels. positive_pairs: pairs of the same meaning.
graded_pairs: pairs with a similarity. triplets: anchors with a positive and any number of
negatives. nothing: no rows.
"""


class MethodBase(Frozen):
    """Base of every method's config.

    Attributes:
        name: The method's name, a literal in each subclass.
        takes_steps: Whether the method minimizes a loss; if not, the optimizer's hyperparameters
            have no effect.
        freezes_encoder: Whether the encoder's weights stay unchanged; its embeddings then come
            from a cache that all trials of a machine share.
        is_trainer: Whether a plugin's function returns a trainer, which decides rows, encoder and
            optimizer.
    """

    takes_steps: ClassVar[bool] = True
    freezes_encoder: ClassVar[bool] = False
    is_trainer: ClassVar[bool] = False

    name: str

    @property
    def trains_on_rows(self) -> bool:
        """Whether this package reads the training rows of the method."""
        return self.takes_steps and not self.is_trainer

    @property
    def rows(self) -> Rows:
        """The kind of rows that the method reads."""
        return "sentences"


class TrainerConfig(MethodBase):
    """Base of the methods that a plugin's function defines by returning a trainer."""

    is_trainer: ClassVar[bool] = True

    @property
    def rows(self) -> Rows:
        """`nothing`, because the plugin's function reads its own data."""
        return "nothing"


class ChunkedConfig(MethodBase):
    """Base of the methods that train the encoder with a loss on its embeddings."""

    chunk: int | None = Field(
        None,
        ge=1,
        description="number of sentences to encode at a time, each of them twice, so that a batch "
        "needs the memory of one chunk (GradCache); unset: the whole batch at once",
    )
