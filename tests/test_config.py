"""The config tree: identity, round trips, and knobs that are generated from the union."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.config import (
    Fingerprints,
    belongs,
    configuration_id_of,
    fitting,
    flatten,
    knobs,
    nest,
    parse_config,
    parse_dotted,
    trial_id,
)
from tune_sentcl.config.parsing import ALIASES
from tune_sentcl.errors import ConfigError

PRINTS = Fingerprints("data", "checkpoint")
COUNT = st.one_of(st.integers(1, 50), st.just("all"))
CONFIGS = st.fixed_dictionaries(
    {"method.name": st.just("scl")},
    optional={
        "method.lambda": st.floats(0, 1),
        "method.temperature": st.floats(1e-3, 10),
        "method.num_positives": COUNT,
        "method.num_negatives": COUNT,
        "encoder.checkpoint": st.sampled_from(["toy", "minilm", "some/folder"]),
        "encoder.share_duplicates": st.booleans(),
        "data.order": st.sampled_from(["file", "groups", "shuffled_groups"]),
        "optimizer.batch_size": st.integers(1, 512),
        "optimizer.lr": st.floats(1e-6, 1e-2),
        "evaluation.every": st.integers(0, 100),
        "seed": st.integers(0, 9),
    },
)


@given(CONFIGS)
def test_a_config_survives_json_with_its_identity(values: dict[str, Any]) -> None:
    config = parse_dotted(values, "test")
    again = parse_config(json.loads(json.dumps(config.nested())), "test")
    assert again == config
    assert trial_id(again, PRINTS) == trial_id(config, PRINTS)
    assert nest(dict(flatten(config.nested())), "test") == config.nested()


@given(CONFIGS, CONFIGS)
def test_equal_ids_mean_equal_trials(left: dict[str, Any], right: dict[str, Any]) -> None:
    one, two = (parse_dotted(values, "test") for values in (left, right))
    # The checkpoint's name gives way to its fingerprint, which is the same for both here.
    shapes = [{**config.dotted(), "encoder.checkpoint": ""} for config in (one, two)]
    assert (trial_id(one, PRINTS) == trial_id(two, PRINTS)) == (shapes[0] == shapes[1])


def test_what_shapes_no_weights_is_no_part_of_the_identity() -> None:
    plain = parse_dotted({"method.name": "scl"}, "test")
    for change in (
        {"evaluation.suites": ["sts"], "evaluation.classifier_seeds": 3},
        {"evaluation.data": "root"},
        {"encoder.checkpoint": "elsewhere", "data.source": "copy.parquet", "data.limit": 5},
        {"method.temperature": 1.0, "optimizer.lr": 2e-5},
    ):
        changed = parse_dotted({"method.name": "scl", **change}, "test")
        assert trial_id(plain, PRINTS) == trial_id(changed, PRINTS)
    for prints in (Fingerprints("x", "checkpoint"), Fingerprints("data", "x")):
        assert trial_id(plain, prints) != trial_id(plain, PRINTS)
    seeds = [parse_dotted({"method.name": "scl", "seed": seed}, "t") for seed in (0, 1, 2)]
    assert len({configuration_id_of(config.dotted(), PRINTS) for config in seeds}) == 1
    assert len({trial_id(config, PRINTS) for config in seeds}) == 3


def test_knobs_are_every_key_of_the_unions() -> None:
    known = knobs()
    seen: set[str] = set()
    for section in ("method", "optimizer"):
        for member in known[f"{section}.name"].owners:
            values = parse_dotted({"method.name": "scl", f"{section}.name": member}, "t").dotted()
            own = {k: v for k, v in values.items() if k.startswith(f"{section}.")}
            assert own.pop(f"{section}.name") == member
            assert own == {
                k: knob.defaults[member]
                for k, knob in known.items()
                if member in knob.owners and k != f"{section}.name"
            }
            assert all(belongs(key, values) for key in values)
            assert {k for k in known if not belongs(k, values)} == set(known) - set(values)
            assert fitting({**dict.fromkeys(known), **values}) == values
            seen |= set(values)
    assert seen == set(known)
    assert all(all(knob.meanings.values()) for knob in known.values())
    kinds = {"method.lambda": "float", "method.num_positives": "str", "evaluation.suites": "list"}
    assert {key: known[key].kind for key in kinds} == kinds
    assert {text.split()[0] for text in ALIASES.values()} <= set(known)
    assert not ALIASES.keys() & {key.rpartition(".")[2] for key in known}


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"optimizer.momentum": 0.5}, "only optimizers sgd and lars have this key"),
        ({"optimizer.name": "sgd", "optimizer.trust": 0.1}, "only optimizer lars has this key"),
        ({"optimizer.name": "lars", "optimizer.eps": 0.1}, "only optimizer adamw has this key"),
        ({"optimizer.name": "adam"}, "must be one of adamw, sgd, lars"),
        ({"optimizer": 5}, "must be a table of keys"),
        ({"method.share": 0.1}, "only method conisi has this key"),
        (
            {"method.lambda": 0.1, "method.name": "sbert"},
            "only methods scl, augment and conisi have this key",
        ),
    ],
)
def test_a_key_of_another_member_is_refused_with_its_owners(
    values: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_dotted({"method.name": "scl", **values}, "--set")
    (fault,) = caught.value.faults
    assert fault.rule == rule


@pytest.mark.parametrize("length", [True, 2, -3, 8.0, "long"])
def test_a_length_is_a_whole_number_of_3_or_more_or_auto(length: object) -> None:
    with pytest.raises(ConfigError, match="3 or more"):
        parse_dotted({"method.name": "mnr", "encoder.max_length": length}, "test")
    for legal in (3, "auto"):
        config = parse_dotted({"method.name": "mnr", "encoder.max_length": legal}, "test")
        assert config.encoder.max_length == legal
