"""The package as its users meet it: light imports, typed names, spaces in the wheel."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tune_sentcl
from tune_sentcl.space import load_space
from tune_sentcl.store.driver import StudyDriver

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
    ("import tune_sentcl.launch", RECORDS),
    ("import tune_sentcl.trial, tune_sentcl.launchers", {*HEAVY} - {"ray"}),
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


CALLS = [
    ("search('smoke', None)", "study: None: must be"),
    ("search('smoke', '~no-such-user/study')", "study: ~no-such-user/study: cannot be found"),
    ("search('smoke', 'a\\0b')", "must not hold a null character"),
    ("search('smoke', 'new', seeds=[-1])", "seeds: [-1]: must be greater than or equal to 0"),
    ("search('smoke', 'new', seeds='0,1')", "seeds: '0,1': must be a list or a tuple"),
    ("search('smoke', 'new', seeds=[0, 0])", "seeds: [0, 0]: must be one or more distinct"),
    ("search('smoke', 'new', options={'trials': 4})", "options: {'trials': 4}: must be a Search"),
    ("search('smoke', 'new', overrides=['a=1'])", "overrides: ['a=1']: must be a valid dict"),
    ("search('smoke', 'new', overrides={'method.lamda': 1})", "overrides: method.lamda = 1: no"),
    ("search('smoke', 'new', watcher=print)", "watcher: <built-in function print>: must be"),
    ("search('smok', 'new')", "space: smok: no preset has this name"),
    ("search('smoke', 'other')", "other: belongs to the search space"),
    (
        "search('smoke', 'new', options=SearchOptions(memory_per_trial=1e6))",
        "SearchOptions.memory_per_trial: 1e+06: must fit this machine",
    ),
    (
        "search('smoke', 'new', options=SearchOptions(objectives=('foo:spearman:dev',)))",
        "SearchOptions.objectives: foo:spearman:dev: the trials do not score this task",
    ),
    ("load_space('smoke', plugins='a.py')", "plugins: 'a.py': must be a list or a tuple"),
    ("load_space('smoke').with_overrides([])", "overrides: []: must be"),
    ("read_study(None)", "path: None: must be"),
    ("read_study('other').configurations('STS-B:spearman')", "objectives: 'STS-B:spearman': must"),
    ("read_study('other').wide(3)", "suite: 3: must be a valid string"),
    ("train_one([], study=None, data=None)", "settings: []: must be"),
    ("train_one({'a': 1}, study=None, data=None)", "settings: a = 1: no such key"),
]
COMMANDS = [
    ("search smoke --study held", "held: another driver writes to this study"),
    (
        "search smoke --study other",
        "other: belongs to the search space 'scl/lambda', not to 'smoke'",
    ),
    ("search smoke --study other/trials/new", "other/trials/new: must not lie inside another"),
    ("search smoke --study=", "--study: '': must not be empty"),
    ("search smoke --study new --objective foo:spearman:dev", "--objective: foo:spearman:dev: "),
    ("search smoke --study new --set evaluation.own=[faq=gone]", "faq = gone: there is no such"),
    ("search smoke --study new --launcher local --address auto", "--address: auto: cannot be"),
    ("plan smoke --study afile", "afile: must be a folder"),
    ("check smoke --launcher local", "--launcher: local: local uses no cluster"),
    ("train --study other", "other: belongs to the search space"),
    ("init mine.toml --rows one.csv", "need 20 rows or more"),
]
if sys.platform == "linux" and not list(Path("/dev").glob("nvidia*")):
    COMMANDS += [("search smoke --study new --gpus-per-trial 1", "--gpus-per-trial: 1: must fit")]

REFUSE = f"""
import json, sys
from typer.testing import CliRunner
from tune_sentcl import *
from tune_sentcl import TuneSentclError
from tune_sentcl.cli import app
from tune_sentcl.launch import train_one

def refused(call):
    if isinstance(call, list):
        return CliRunner().invoke(app, call).stderr
    try:
        eval(call)
    except TuneSentclError as error:
        return str(error)

for call in json.load(sys.stdin):
    said = refused(call)
    print(json.dumps([said, [name for name in {HEAVY[:4]!r} if name in sys.modules]]))
"""


def test_cheap_refusals_import_nothing_heavy_and_write_nothing(tmp_path: Path) -> None:
    """Imports of torch, transformers and Ray take seconds, on a busy machine half a minute."""
    (tmp_path / "afile").touch()
    (tmp_path / "one.csv").write_text("anchor,positive\na cat,an animal\n")
    StudyDriver.open(tmp_path / "other", space=load_space("scl/lambda"), command=[]).close()
    with StudyDriver.open(tmp_path / "held", space=load_space("smoke"), command=[]):
        before = sorted(tmp_path.rglob("*"))
        calls = [*CALLS, *((text.split(), says) for text, says in COMMANDS)]
        done = subprocess.run(
            [sys.executable, "-c", REFUSE],
            cwd=tmp_path,
            input=json.dumps([call for call, _ in calls]),
            capture_output=True,
            text=True,
            check=True,
        )
        assert sorted(tmp_path.rglob("*")) == before
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for (call, says), (said, loaded) in zip(calls, answers, strict=True):
        assert says in (said or "accepted"), call
        assert said.count("\n") <= 1 and loaded == [], call


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
    files = (
        "py.typed",
        "data/toy.parquet",
        "data/support.toml",
        "export/card.md.jinja",
        "init/new_space.toml.jinja",
    )
    assert {f"tune_sentcl/{name}" for name in files} <= names
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
