"""`--set` and `--seeds`: TOML where it is TOML, else the text as it stands."""

import json
import math
import tomllib
from datetime import date, datetime, time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tune_sentcl.cli.options import parse_seeds, parse_settings, parse_value
from tune_sentcl.errors import ConfigError

scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(),
    st.dates(),
    st.times(),
    st.datetimes(),
)


def as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, and for pairs beyond the first plane.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return repr(value)


@given(scalars)
def test_a_toml_scalar_comes_back(value: Any) -> None:
    found = parse_settings([f"method.lambda = {as_toml(value)}"])["method.lambda"]
    assert type(found) is type(value)
    assert found == value or (isinstance(value, float) and math.isnan(value) and found != found)


@given(st.lists(scalars, max_size=4))
def test_a_toml_list_comes_back(values: list[Any]) -> None:
    assume(not any(isinstance(value, float) and math.isnan(value) for value in values))
    assert parse_value(f"[{', '.join(map(as_toml, values))}]") == values


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(f"value = {text}")
    except ValueError:
        return False
    return True


@given(st.text())
def test_anything_else_is_the_same_text(text: str) -> None:
    assume(not is_toml(text) and not (text.startswith("[") and text.endswith("]")))
    assert parse_value(text) == text


AS_THEY_STAND = ["1 # one", "0.3\nseed = 5", '"a" # b', "1, 2", "bert/base#1", "", "9" * 5000]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, text) for text in AS_THEY_STAND),
        ("[sts]", ["sts"]),
        ("[a, 'b']", ["a", "b"]),
        ("[1, b]", ["1", "b"]),
        ("[]", []),
        ('"3"', "3"),
        ("1e-3", 1e-3),
    ],
)
def test_values_as_people_write_them(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_the_last_of_two_settings_counts_and_blanks_around_them_do_not() -> None:
    assert parse_settings(["seed=1", " lr = 0.1 ", "seed=2"]) == {"seed": 2, "lr": 0.1}


@given(st.lists(st.integers(0, 10**18 - 1), min_size=1, unique=True))
def test_seeds_come_back(seeds: list[int]) -> None:
    assert parse_seeds(", ".join(map(str, seeds))) == tuple(seeds)


@pytest.mark.parametrize("text", ["", "a,b", "0,0", "0,,1", "-1", "1.0", "0 1", "1" * 19, "²"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="distinct whole numbers of 0 or more"):
        parse_seeds(text)
