"""The package as its users meet it: light imports, typed names, spaces in the wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tune_sentcl

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "ray", "optuna", "datasets", "pandas", "pyarrow", "scipy")


# What a fresh interpreter runs, line by line, and the heavy modules that it may hold after each.
RECORDS = {"datasets", "pandas", "pyarrow", "scipy"}
STEPS: list[tuple[str, set[str]]] = [
    ("import tune_sentcl, tune_sentcl.cli, tune_sentcl.space", set()),
    ("tune_sentcl.load_space('smoke')", RECORDS),
    ("tune_sentcl.paper_results()", RECORDS),
    ("tune_sentcl.read_study", RECORDS),
    ("import tune_sentcl.store, tune_sentcl.analysis", RECORDS),
    ("import tune_sentcl.cli.watch_command, tune_sentcl.export.model_folder", RECORDS),
    ("import tune_sentcl.trial, tune_sentcl.launch", {*HEAVY} - {"ray"}),
]


def test_what_is_imported_loads_no_more_than_it_needs() -> None:
    report = f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    lines = ["import sys", *(line for code, _ in STEPS for line in (code, report))]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    loaded = [set(line.split()) for line in done.stdout.splitlines()]
    too_many = {
        code: found - allowed
        for (code, allowed), found in zip(STEPS, loaded, strict=True)
        if found - allowed
    }
    assert too_many == {}


def test_every_public_name_resolves() -> None:
    for name in tune_sentcl.__all__:
        assert getattr(tune_sentcl, name).__doc__
    assert set(tune_sentcl.__all__) <= set(dir(tune_sentcl))
    with pytest.raises(AttributeError, match="has no attribute 'serach'"):
        _ = tune_sentcl.serach


def test_the_wheel_carries_spaces_numbers_types_and_licence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    spaces = {
        f"tune_sentcl/{p.relative_to(ROOT)}" for p in (ROOT / "search_spaces").rglob("*.toml")
    }
    assert spaces and spaces <= names
    assert {
        f"tune_sentcl/{name}" for name in ("py.typed", "data/toy.parquet", "export/card.md.jinja")
    } <= names
    numbers = {"paper_results.csv", "errata.csv"}
    assert {f"tune_sentcl/analysis/reported/{name}" for name in numbers} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    code = (
        "from tune_sentcl.space import load_space, space_names; print(*space_names()); "
        "from tune_sentcl import paper_results; print(len(paper_results()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"scl/lambda", "conisi/main", "clsr/main", "594"} <= set(done.stdout.split())
