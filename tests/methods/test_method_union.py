"""Every method of the config union is there, whole; and its rows allow only some orders."""

import inspect
import typing
from pathlib import Path

import pytest

from tune_sentcl import methods
from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import ConfigError
from tune_sentcl.methods import Method, method_class

UNION = typing.get_args(TrialConfig.model_fields["method"].annotation)
NAMES = {typing.get_args(member.model_fields["name"].annotation)[0]: member for member in UNION}
LABELED = ("sbert", "scl", "augment")


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_found_by_its_name_and_made_for_its_config(name: str) -> None:
    found: typing.Any = method_class(NAMES[name](name=name))
    assert issubclass(found, Method) and not inspect.isabstract(found)
    assert found.__module__ == f"tune_sentcl.methods.{name}"
    assert f"Method `{name}`" in found.__doc__ and found.loss.__doc__
    assert typing.get_args(found.__orig_bases__[0])[0] is NAMES[name]


def test_no_module_holds_a_method_outside_the_union() -> None:
    folder = Path(methods.__file__).parent
    held = {file.stem for file in folder.glob("*.py") if "\nMETHOD = " in file.read_text()}
    assert held == set(NAMES)


@pytest.mark.parametrize("order", ["file", "shuffled", "distinct", "groups", "shuffled_groups"])
@pytest.mark.parametrize("name", NAMES)
def test_the_order_must_fit_the_rows(name: str, order: str) -> None:
    legal, rows = "file, shuffled or distinct", "other rows than labeled pairs"
    if name in ("sbert", "scl", "augment"):
        legal, rows = "file, groups or shuffled_groups", "labeled pairs"
    values = {"method.name": name, "data.order": order}
    if order in legal.replace(" or ", ", ").split(", "):
        assert parse_dotted(values, "test").data.order == order
        return
    with pytest.raises(ConfigError) as caught:
        parse_dotted(values, "test")
    (fault,) = caught.value.faults
    assert (fault.where, fault.key, fault.value) == ("test", "data.order", f"'{order}'")
    assert fault.rule == f"must be {legal} for a method that reads {rows}"
