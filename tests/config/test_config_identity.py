"""Identities against a checked-in table: no change of the code renames a trial unnoticed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from config_samples import CHANGES, LATER, MEMBERS, Values

from tune_sentcl.config import (
    Fingerprints,
    TrialConfig,
    configuration_id_of,
    flatten,
    is_idle,
    knobs,
    parse_dotted,
    trial_id,
    trial_id_of,
)
from tune_sentcl.config.data_names import own_source
from tune_sentcl.errors import ConfigError
from tune_sentcl.space import load_space, space_names

TABLE: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "identities.json").read_text()
)

"""Written by hand: which changes of a config change nothing of its trial."""

"""Likewise: changes that do there what the preset does, of knobs that have an effect."""


def prints(values: Values) -> Fingerprints:
    best = values["evaluation.select"] == "best"
    return Fingerprints("data", "checkpoint", "selection" if best else "")


def changed(member: str) -> Iterator[tuple[str, str, TrialConfig]]:
    """The table's changes of a config: what they are called, their knob, and what they make."""
    yield "", "", parse_dotted(MEMBERS[member], "test")
    for key, values in CHANGES.items():
        for value in values:
            if f"{key}={value}" in TABLE["changed"][member]:
                yield f"{key}={value}", key, parse_dotted({**MEMBERS[member], key: value}, "test")


def test_the_shipped_trials_keep_their_names() -> None:
    shipped = {name: load_space(name).configurations for name in space_names()}
    assert TABLE["shipped"] == {
        name: [trial_id(config, prints(config.dotted())) for config in configurations]
        for name, configurations in shipped.items()
    }


@pytest.mark.parametrize("member", MEMBERS)
def test_every_change_keeps_its_name_also_where_it_is_stored(member: str) -> None:
    names = {}
    for label, _, config in changed(member):
        names[label] = trial_id(config, prints(config.dotted()))
        stored = dict(flatten(json.loads(json.dumps(config.nested()))))
        assert trial_id_of(dict(reversed(stored.items())), prints(stored)) == names[label]
        assert configuration_id_of(stored, prints(stored)) == configuration_id_of(
            config.dotted(), prints(stored)
        )
    assert names == TABLE["changed"][member]


def test_the_changes_are_of_every_knob() -> None:
    # The guide's weights count, and so do the rows that are read. What is measured counts nowhere.
    others = {"method.name", "optimizer.name", "method.guide", "evaluation.own"}
    others |= {"evaluation.cutoffs", "evaluation.cost", "data.columns", "data.blanks"}
    others |= {"data.positives"}
    others |= {"data.mined", "data.mined_by", "data.mined_margin", "data.mined_depth"}
    assert set(CHANGES) | set(LATER) | others == set(knobs())
    assert not set(CHANGES) & set(LATER)
    tried = {key for member in MEMBERS for _, key, _ in changed(member)} - {""}
    assert tried == set(CHANGES)
    assert {"adamw", "sgd", "lars"} <= {
        parse_dotted(v, "test").optimizer.name for v in MEMBERS.values()
    }


@pytest.mark.parametrize("key", LATER)
def test_a_knob_that_came_later_counts_where_it_is_set_and_only_there(key: str) -> None:
    base, value = LATER[key]
    plain = parse_dotted(base, "test").dotted()
    stored = {name: given for name, given in plain.items() if name != key}
    changed = parse_dotted({**base, key: value}, "test").dotted()
    names = [trial_id_of(values, prints(values)) for values in (plain, stored, changed)]
    assert names[0] == names[1] != names[2]


def test_values_that_act_alike_are_one_trial() -> None:
    """At lambda 0 and 1 the head sees two kinds of input, together or apart."""

    def named(weight: float, passes: str) -> str:
        values = {"method.name": "conisi", "method.lambda": weight, "method.batch_norm": passes}
        config = parse_dotted(values, "test")
        return trial_id(config, prints(config.dotted()))

    assert named(0.0, "pairs") == named(0.0, "separate") != named(0.0, "joint")
    assert named(1.0, "pairs") == named(1.0, "joint") != named(1.0, "separate")
    assert len({named(0.5, passes) for passes in ("pairs", "joint", "separate")}) == 3


@pytest.mark.parametrize("member", ["simcse", "simcse best", "whitening best"])
def test_the_development_set_counts_where_it_chooses_the_weights(member: str) -> None:
    config = parse_dotted({**MEMBERS[member], "evaluation.select": "best"}, "test")
    names = {
        trial_id(config, Fingerprints("data", "checkpoint", which)) for which in ("a", "b", "")
    }
    assert len(names) == (3 if member == "simcse best" else 1)


def test_how_sources_are_mixed_counts_where_there_are_several() -> None:
    plain, turns = ({"method.name": "scl", "data.mix": mix} for mix in ("proportional", "in_turn"))
    for source, alike in (("toy", True), ("toy + snli", False), (["toy", "snli"], False)):
        configs = [parse_dotted({**v, "data.source": source}, "test") for v in (plain, turns)]
        first, second = (trial_id(c, prints(c.dotted())) for c in configs)
        assert first == TABLE["changed"]["scl"][""]  # of their rows the fingerprint counts
        assert (first == second) == alike
        assert is_idle("data.mix", configs[0].dotted()) == alike


@pytest.mark.parametrize(
    ("base", "key", "one", "other"),
    [
        ({"method.name": "gist"}, "method.margin_kind", "absolute", "relative"),
        ({"method.name": "simcse"}, "encoder.lora_targets", "query,value", "value, query"),
        ({"method.name": "mnr"}, "method.dims", [8, 16], [16, 8]),
    ],
)
def test_one_trial_has_one_name(base: Values, key: str, one: Any, other: Any) -> None:
    more = {"encoder.lora_rank": 4} if key.startswith("encoder.lora") else {}
    configs = [parse_dotted({**base, **more, key: value}, "test") for value in (one, other)]
    first, second = (trial_id(config, prints(config.dotted())) for config in configs)
    assert first == second


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method.name": "conisi", "method.lambda": 2.0}, r"default 0\.8\)"),
        (
            {"method.name": "mnr", "method.dims": [8], "method.head": "dropped"},
            r"method\.head.*must be none or kept",
        ),
    ],
)
def test_a_fault_names_the_rule_of_its_own_method(values: Values, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_dotted(values, "test")


def test_own_sources_have_a_name() -> None:
    for entry, expected in (
        ("mine=a/b.csv", ("mine", "a/b.csv", "")),
        ("mteb:Banking77", ("Banking77", "", "Banking77")),
        ("mine=mteb:STS12", ("mine", "", "STS12")),
    ):
        source = own_source(entry)
        assert (source.name, source.path, source.task) == expected
    with pytest.raises(ValueError, match="mine=mteb:STS12"):
        own_source("mteb:STS12")  # SentEval has this name
