"""Spaces: every shipped file is what it declares, and expansion obeys its laws."""

import tomllib
from pathlib import Path

import pytest

from tune_sentcl.config import Fingerprints, TrialConfig, trial_id
from tune_sentcl.errors import BadInputError
from tune_sentcl.space import load_space, space_names

ROOT = Path(__file__).parents[1] / "search_spaces"
PRINTS = Fingerprints("data", "checkpoint")


def test_the_shipped_spaces_are_all_files_there_are() -> None:
    files = {p.relative_to(ROOT).with_suffix("").as_posix() for p in ROOT.rglob("*.toml")}
    assert set(space_names()) == files and len(files) >= 6


@pytest.mark.parametrize("name", space_names())
def test_a_shipped_space_holds_its_grid_in_its_ranges(name: str) -> None:
    space = load_space(name)
    assert space.name == name
    assert space.ranges
    for config in space.configurations:
        assert space.point(config) is not None, config.method
    ids = {trial_id(config, PRINTS) for config in space.configurations}
    assert len(ids) == len(space.configurations)


def test_the_scl_spaces_hold_the_18_rows_that_our_methods_train() -> None:
    names = [n for n in space_names() if n.startswith("scl/") and n != "scl/extended"]
    rows = {config for name in names for config in load_space(name).configurations}
    assert len(rows) == 18


def test_the_scl_spaces_share_one_preset() -> None:
    files = [tomllib.loads(p.read_text(encoding="utf-8")) for p in (ROOT / "scl").glob("*.toml")]
    assert len(files) == 5
    assert all(file["fixed"] == files[0]["fixed"] for file in files)


@pytest.mark.real
def test_the_scl_spaces_hold_every_row_of_the_paper(real_data: Path) -> None:
    import csv

    with (real_data.parent / "papers" / "paper_results.csv").open(encoding="utf-8") as file:
        rows = [
            r for r in csv.DictReader(file) if r["paper"] == "SCL" and r["method"] != "glove-avg"
        ]
    assert len(rows) > 300
    names = {"sbert-ce": "sbert", "ce-augment": "augment", "scl": "scl"}
    printed = {
        (names[r["method"]], r["lambda"], r["temperature"], r["num_positives"], r["num_negatives"])
        for r in rows
        if r["method"] != "sbert-ce"
    } | {("sbert", "", "", "", "")}
    held = set()
    for name in space_names():
        for config in load_space(name).configurations if name.startswith("scl/") else ():
            values = config.dotted()
            keys = ("lambda", "temperature", "num_positives", "num_negatives")
            row = tuple(str(values.get(f"method.{key}", "")) for key in keys)
            if config.method.name == "augment":
                row = ("", *row[1:])  # the paper prints no lambda for it
            held.add((config.method.name, *row))
    assert len(printed) == 18
    assert printed <= held


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\n{text}', encoding="utf-8")
    return path


def test_blocks_are_a_union_of_products_without_repetition(tmp_path: Path) -> None:
    space = load_space(
        write(
            tmp_path,
            """
            trials = 5
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


def test_a_setting_of_the_seed_is_the_space_s_seed() -> None:
    space = load_space("smoke", {"seed": 7})
    assert space.seeds == (7,) and all(c.seed == 0 for c in space.configurations)


def test_a_sampled_point_is_where_it_came_from() -> None:
    space = load_space("scl/extended")
    values = {
        "method.name": "scl",
        "method.lambda": 0.25,
        "method.temperature": 0.02,
        "method.similarity": "cosine",
        "optimizer.batch_size": 128,
    }
    config = space.sampled(values)
    assert space.point(config) == values
    assert space.point(config.model_copy(update={"seed": 3})) == values
    outside = TrialConfig.from_dotted({**config.dotted(), "optimizer.lr": 1e-3}, "test")
    assert space.place(outside) == values and space.point(outside) is None


def test_every_fault_of_a_range_is_found_before_anything_runs(tmp_path: Path) -> None:
    text = """
    trials = 1
    [[block]]
    fixed.method.name = "scl"
    [search.ranges]
    method.lambda = { low = 0.0, high = 1.5 }
    """
    with pytest.raises(BadInputError, match=r"method.lambda = 1.5"):
        load_space(
            write(tmp_path, text.replace("[search", "[search.fixed]\nmethod.name='scl'\n[search"))
        )
