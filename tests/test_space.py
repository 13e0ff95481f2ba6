"""Spaces: every shipped file is what it declares, and expansion obeys its laws."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tune_sentcl.analysis import paper_results
from tune_sentcl.analysis.papers.paper_results import Paper
from tune_sentcl.config import Fingerprints, TrialConfig, trial_id
from tune_sentcl.errors import BadInputError
from tune_sentcl.space import load_space, space_names
from tune_sentcl.tuning.sampler import Sampler, distributions

ROOT = Path(__file__).parents[1] / "search_spaces"


def prints(config: TrialConfig) -> Fingerprints:
    """As if every source, every mining and every checkpoint held something of its own."""
    return Fingerprints(f"{config.data.source} {config.data.mined}", config.encoder.checkpoint)


def test_the_shipped_spaces_are_all_files_there_are() -> None:
    files = {p.relative_to(ROOT).with_suffix("").as_posix() for p in ROOT.rglob("*.toml")}
    assert set(space_names()) == files and len(files) >= 6


@pytest.mark.parametrize("name", space_names())
def test_a_shipped_space_holds_its_grid_in_its_ranges(name: str) -> None:
    space = load_space(name)
    assert space.name == name
    assert space.ranges
    for config in space.configurations:
        if name == "retrieval/mined" and config.method.name == "none":
            continue  # beside the ranges, for comparison
        assert space.exact_params(config) is not None, config.method
        assert distributions(space, config.dotted()), config.method
    ids = {trial_id(config, prints(config)) for config in space.configurations}
    assert len(ids) == len(space.configurations)


PAPERS: dict[str, Paper] = {"scl": "SCL", "conisi": "ConIsI", "clsr": "CLSR"}


@pytest.mark.parametrize("folder", PAPERS)
def test_every_table_of_a_paper_has_its_space(folder: str) -> None:
    listed = {
        table
        for name in space_names()
        if name.startswith(f"{folder}/")
        for table in load_space(name).tables
    }
    assert set(paper_results(PAPERS[folder])["table"]) <= listed


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\n{text}', encoding="utf-8")
    return path


def test_blocks_are_a_union_of_products_without_repetition(tmp_path: Path) -> None:
    space = load_space(
        write(
            tmp_path,
            """
            [fixed]
            method.name = "scl"
            [[block]]
            grid.method.lambda = [0.1, 0.2]
            grid.optimizer.lr = [1e-5, 2e-5]
            [[block]]
            fixed.optimizer.lr = 1e-5
            grid.method.lambda = [0.2, 0.3]
            """,
        )
    )
    points = [(c.dotted()["method.lambda"], c.optimizer.lr) for c in space.configurations]
    assert points == [(0.1, 1e-5), (0.1, 2e-5), (0.2, 1e-5), (0.2, 2e-5), (0.3, 1e-5)]


def test_a_setting_replaces_a_grid_and_its_range() -> None:
    space = load_space("scl/lambda", {"method.lambda": 0.5, "encoder.checkpoint": "toy"})
    assert [c.method.name for c in space.configurations] == ["sbert", "scl"]
    assert {r.key for r in space.ranges} == {"method.name", "method.temperature"}
    assert all(c.encoder.checkpoint == "toy" for c in space.configurations)


@pytest.mark.parametrize(
    ("settings", "extras"),
    [
        ({}, ()),
        ({"encoder.checkpoint": "random:minilm"}, ("embedded",)),
        ({"encoder.checkpoint": "static:256:minilm"}, ("embedded",)),
        ({"encoder.lora_rank": 8}, ("lora",)),
        ({"evaluation.own": ["mine=mteb:Banking77Classification", "a=b"]}, ("mteb",)),
        ({"method.name": "gist", "method.guide": "minilm"}, ("embedded",)),
    ],
)
def test_a_space_knows_which_extras_it_needs(
    settings: dict[str, Any], extras: tuple[str, ...]
) -> None:
    assert load_space("smoke", settings).extras == extras


def test_ranges_need_extras_too(tmp_path: Path) -> None:
    text = """
    fixed.method.name = "simcse"
    fixed.encoder.checkpoint = "toy"
    [[block]]
    [search.ranges]
    encoder.lora_rank = { low = 0, high = 8 }
    encoder.checkpoint = { choices = ["toy", "minilm"] }
    """
    assert load_space(write(tmp_path, text)).extras == ("embedded", "lora")


def test_a_block_names_rows_in_the_order_of_its_grid(tmp_path: Path) -> None:
    text = """
    [[block]]
    paper_rows = ["a", "", "c", "d"]
    fixed.method.name = "scl"
    grid.method.lambda = [0.1, 0.2]
    grid.optimizer.batch_size = [8, 16]
    """
    rows = load_space(write(tmp_path, text)).paper_rows
    named = [(name, one.dotted()["method.lambda"], one.optimizer.batch_size) for name, one in rows]
    assert named == [("a", 0.1, 8), ("c", 0.2, 8), ("d", 0.2, 16)]
    with pytest.raises(BadInputError, match=r"paper_rows.*must name a row, .* of the 4 points"):
        load_space(write(tmp_path, text.replace('"a", ', "")))


OPTIMIZERS = """
[fixed]
method.name = "clsr"
optimizer.momentum = 0.8
optimizer.trust = 0.01
[[block]]
grid.optimizer.name = ["lars", "sgd", "adamw"]
[search.ranges]
optimizer.eps = { choices = [1e-8, 1e-6] }
optimizer.lr = { low = 0.1, high = 1.0 }
optimizer.momentum = { low = 0.0, high = 0.9 }
optimizer.name = { choices = ["lars", "sgd", "adamw"] }
method.hidden = { choices = [64, 128] }
method.name = { choices = ["clsr", "none"] }
"""


def test_a_knob_of_an_optimizer_applies_where_the_drawn_one_has_it(tmp_path: Path) -> None:
    space = load_space(write(tmp_path, OPTIMIZERS))
    by_name = {c.optimizer.name: c.dotted() for c in space.configurations}
    assert by_name["lars"]["optimizer.momentum"] == by_name["sgd"]["optimizer.momentum"] == 0.8
    assert by_name["lars"]["optimizer.trust"] == 0.01
    assert "optimizer.momentum" not in by_name["adamw"]
    assert [r.key for r in space.ranges][:2] == ["method.name", "optimizer.name"]
    names = {"method.name", "optimizer.name", "optimizer.lr"}
    own = {"lars": {"optimizer.momentum"}, "sgd": {"optimizer.momentum"}}
    assert len(space.branches()) == 6
    for branch in space.branches():
        wanted = names | own.get(branch["optimizer.name"], {"optimizer.eps"})
        wanted |= {"method.hidden"} if branch["method.name"] == "clsr" else set()
        assert {r.key for r in space.active_ranges(branch)} == wanted
    # A whole number in a real range is real.
    values = {"method.name": "clsr", "method.hidden": 64, "optimizer.name": "sgd"}
    values |= {"optimizer.lr": 1, "optimizer.momentum": 0.3}
    assert space.exact_params(space.sampled(values)) == values
    assert isinstance(space.sampled_values(values)["optimizer.lr"], float)


def test_a_setting_of_an_optimizer_takes_up_the_file_s_values_for_it(tmp_path: Path) -> None:
    text = (
        OPTIMIZERS.partition("[search")[0]
        .replace("3", "1")
        .replace(
            'grid.optimizer.name = ["lars", "sgd", "adamw"]', 'fixed.optimizer.name = "adamw"'
        )
    )
    (config,) = load_space(write(tmp_path, text), {"optimizer.name": "sgd"}).configurations
    assert config.dotted()["optimizer.momentum"] == 0.8
    with pytest.raises(BadInputError, match="optimizer lars has this key"):
        load_space(write(tmp_path, text), {"optimizer.name": "sgd", "optimizer.trust": 1.0})


def test_several_sources_are_a_list_in_a_grid_and_a_text_in_a_range(tmp_path: Path) -> None:
    text = """
    [[block]]
    fixed.method.name = "simcse"
    grid.data.source = ["toy", ["toy", "snli"]]
    [search.fixed]
    method.name = "simcse"
    [search.ranges]
    data.source = { choices = ["toy", "toy + snli"] }
    """
    space = load_space(write(tmp_path, text))
    assert [config.data.source for config in space.configurations] == ["toy", "toy + snli"]
    assert [r.choices for r in space.ranges] == [("toy", "toy + snli")]
    for wrong in ('["toy", "snli"]', '"toy"'):
        with pytest.raises(BadInputError, match=r"data.source.*(not be lists|two choices)"):
            load_space(write(tmp_path, text.replace('"toy + snli"', wrong)))
    with pytest.raises(BadInputError, match="seed: the seed cannot be sampled"):
        load_space(write(tmp_path, f"{text}seed = {{ choices = [0, 1] }}"))


@pytest.mark.parametrize(
    ("key", "values", "fault"),
    [
        ("optimizer.lr", "[1, 1.0]", "optimizer.lr = 1, 1.0: two choices"),
        ("optimizer.lr", "[1e-5, 0.00001]", "optimizer.lr = 1e-05, 1e-05: two choices"),
        ("optimizer.batch_size", "[8, 8]", "optimizer.batch_size = 8, 8: two choices"),
        ("encoder.pooling", '["cls", "cls"]', "encoder.pooling = 'cls', 'cls': two choices"),
        ("data.source", '["a + b", "a  +  b"]', "data.source = 'a + b', 'a  +  b': two choices"),
        ("method.symmetric", "[true, 1]", "method.symmetric = 1: must be true or false"),
    ],
)
def test_two_choices_are_two_configurations(
    key: str, values: str, fault: str, tmp_path: Path
) -> None:
    """A range is refused, because a sampler would draw one twice; a grid holds it once."""
    block = f"""
    [[block]]
    fixed.method.name = "mnr"
    grid.{key} = {values}
    """
    if "two choices" in fault:
        path = write(tmp_path, block)
        path.write_text(path.read_text(), encoding="utf-8-sig")  # as some editors write it
        assert len(load_space(path).configurations) == 1
    ranges = f"""
    [[block]]
    fixed.method.name = "mnr"
    [search.ranges]
    method.name = {{ choices = ["mnr"] }}
    {key} = {{ choices = {values} }}
    """
    with pytest.raises(BadInputError) as caught:
        load_space(write(tmp_path, ranges))
    assert [fault in str(one) for one in caught.value.faults] == [True]


def test_ranges_without_a_method_are_refused_at_their_own_place(tmp_path: Path) -> None:
    text = """
    [[block]]
    fixed.method.name = "scl"
    [search.ranges]
    method.lambda = { low = 0.0, high = 0.5 }
    """
    with pytest.raises(BadInputError) as caught:
        load_space(write(tmp_path, text))
    (fault,) = caught.value.faults
    assert fault.where.endswith("[search]") and fault.key == "method.name"
    assert "[search.fixed]" in fault.move and "[search.ranges]" in fault.move
    named = {"method.name": "scl"}
    assert load_space(write(tmp_path, text), named).branches() == [{}]


def test_overrides_of_a_loaded_space_come_on_top_of_its_own() -> None:
    first, more = {"method.lambda": 0.5, "optimizer.lr": 1e-4}, {"optimizer.lr": 1e-3, "seed": 4}
    once = load_space("scl/lambda", {**first, **more})
    again = load_space("scl/lambda", first).with_overrides(more)
    assert again == once
    assert again.configurations != load_space("scl/lambda", first).configurations
    assert again.seeds == (4,) and again.text == load_space("scl/lambda").text
    assert again.with_overrides({}) is again
    with pytest.raises(BadInputError, match=r"--set: method.share = 0\.1: only method conisi has"):
        again.with_overrides({"method.share": 0.1})
    bare = replace(again, text="")
    assert bare.with_overrides({}) is bare
    with pytest.raises(BadInputError, match="was read from a file"):
        bare.with_overrides({"seed": 1})


@pytest.mark.parametrize("name", space_names())
def test_values_of_a_place_are_those_of_its_configuration(name: str) -> None:
    space = load_space(name)
    sampler = Sampler("random", space, 0, 0)
    for _ in range(5 * len(space.branches())):
        place = sampler.propose(lambda place: True)
        if place is None:
            break
        values = space.sampled_values(place)
        config = space.sampled(place)
        assert values == config.dotted()
        assert list(map(type, values.values())) == list(map(type, config.dotted().values()))
        assert space.params_of(values) == space.params(config) == place
