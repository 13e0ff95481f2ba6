"""The package as its users meet it: light imports, typed names, spaces in the wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tune_sentcl

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "ray", "optuna", "datasets", "pandas", "pyarrow", "scipy")


def loaded(code: str) -> set[str]:
    """The heavy modules that a fresh interpreter holds after some code."""
    report = f"{code}\nimport sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded("import tune_sentcl, tune_sentcl.cli, tune_sentcl.space") == set()


@pytest.mark.parametrize(
    "code",
    [
        "from tune_sentcl import read_study",
        "from tune_sentcl import paper_results; paper_results()",
        "import tune_sentcl.store, tune_sentcl.analysis",
        "from tune_sentcl import load_space; load_space('smoke')",
    ],
)
def test_the_record_side_needs_no_torch_and_no_ray(code: str) -> None:
    assert not loaded(code) & {"torch", "transformers", "ray", "optuna"}


def test_training_needs_no_ray() -> None:
    modules = "tune_sentcl.trial, tune_sentcl.launch"
    assert "ray" not in loaded(f"import {modules}")


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
    assert "tune_sentcl/py.typed" in names
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
