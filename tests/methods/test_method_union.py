"""Every registered method is there, whole; and its rows allow only some orders."""

import inspect
import typing
from pathlib import Path

import pytest

from tune_sentcl import methods
from tune_sentcl.config import METHODS, parse_dotted
from tune_sentcl.errors import ConfigError
from tune_sentcl.methods import Method, method_class

NAMES = {name: one.config for name, one in METHODS.items() if not one.plugin}
LABELED = ("sbert", "scl", "augment")


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_found_by_its_name(name: str) -> None:
    found = method_class(NAMES[name](name=name))
    assert issubclass(found, Method) and not inspect.isabstract(found)
    assert found.__module__ == f"tune_sentcl.methods.{name}"
    assert found.__doc__ and f"Method `{name}`" in found.__doc__
    assert found.loss.__doc__


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_made_for_the_config_of_its_name(name: str) -> None:
    base, *_ = typing.cast(typing.Any, method_class(NAMES[name](name=name))).__orig_bases__
    assert typing.get_args(base)[0] is NAMES[name]


def test_no_module_holds_a_method_outside_the_registry() -> None:
    folder = Path(methods.__file__).parent
    held = {file.stem for file in folder.glob("*.py") if "\nMETHOD = " in file.read_text()}
    assert held == set(NAMES)


ORDERS = {
    name: {"file", "groups", "shuffled_groups"}
    if name in LABELED
    else {"file", "shuffled", "distinct"}
    for name in NAMES
}


@pytest.mark.parametrize("order", ["file", "shuffled", "distinct", "groups", "shuffled_groups"])
@pytest.mark.parametrize("name", NAMES)
def test_the_order_must_fit_the_rows(name: str, order: str) -> None:
    values = {"method.name": name, "data.order": order}
    if order in ORDERS[name]:
        assert parse_dotted(values, "test").data.order == order
        return
    with pytest.raises(ConfigError) as caught:
        parse_dotted(values, "test")
    (fault,) = caught.value.faults
    assert (fault.where, fault.key, fault.value) == ("test", "data.order", f"'{order}'")
    legal, rows = "file, shuffled or distinct", "other rows than labeled pairs"
    if name in LABELED:
        legal, rows = "file, groups or shuffled_groups", "labeled pairs"
    assert fault.rule == f"must be {legal} for a method that reads {rows}"
