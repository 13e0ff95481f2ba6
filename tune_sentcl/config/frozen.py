"""What every table of knobs has in common: strict, frozen, and no key that it does not know."""

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError


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
