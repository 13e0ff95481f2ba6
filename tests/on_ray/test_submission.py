"""What a submitted job consists of: its id, its working directory, and what is refused."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tune_sentcl.errors import ConfigError
from tune_sentcl.on_ray.submission import (
    SPACE_FILE,
    job_id,
    run_of,
    runtime_environment,
    working_directory,
)
from tune_sentcl.space import load_space

PACKAGE = Path(__file__).parents[2] / "tune_sentcl"


def test_the_package_its_metadata_and_the_space_are_sent_and_nothing_else() -> None:
    files = working_directory(load_space("smoke"))
    assert files.pop(SPACE_FILE).decode() == f'name = "smoke"\n{load_space("smoke").text}'
    (metadata,) = [name for name in files if not name.startswith("tune_sentcl/")]
    assert re.fullmatch(r"tune_sentcl-[0-9.]+\.dist-info/METADATA", metadata)
    sources = {path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".csv", ".js")}
    assert {f"tune_sentcl/{path.relative_to(PACKAGE)}" for path in sources} <= files.keys()
    assert "tune_sentcl/search_spaces/smoke.toml" in files
    assert not [name for name in files if "__pycache__" in name or "/." in name]


def test_what_is_sent_runs_where_it_lies_and_can_send_itself(tmp_path: Path) -> None:
    files = working_directory(load_space("smoke"))
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    code = (
        "import importlib.metadata as m, tune_sentcl; from tune_sentcl.space import load_space; "
        "from tune_sentcl.on_ray.submission import working_directory as sent; "
        "space = load_space('space.toml'); print(tune_sentcl.__file__, space.name, "
        "m.version('tune-sentcl'), len(sent(space)), 'torch' in str(m.requires('tune-sentcl')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    version = re.search(r"-([0-9.]+)\.dist-info", str(files.keys()))
    expected = f"{tmp_path / 'tune_sentcl/__init__.py'} smoke {version and version[1]}"
    assert done.stdout == f"{expected} {len(files)} True\n"


def test_what_is_large_is_named(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text(load_space("smoke").text + "#" * 21_000_000)
    with pytest.raises(ConfigError, match=r"20 MB or below.*large\.toml \(21\.0 MB\), "):
        working_directory(load_space(path))


def test_dependencies_are_pinned_at_what_is_installed_here() -> None:
    pip = runtime_environment(pip=True, extras=())["pip"]
    pins = dict(pin.split("==") for pin in pip["packages"])
    assert {"torch", "optuna", "transformers"} <= set(pins)
    assert not {"ray", "pytest", "nltk"} & set(pins)
    assert not any("+" in version for version in pins.values())


def test_no_variable_of_this_machine_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    assert "s3cr3t" not in str(runtime_environment(pip=True, extras=()))


@pytest.mark.parametrize(
    "other",
    [
        "/disk/studies/One/",
        "//disk/studies//One",
        "/disk/./x/../studies/One",
        "file:///disk/studies/One",
    ],
)
def test_spellings_of_a_path_are_one_study(other: str) -> None:
    assert job_id(other, 1) == job_id("/disk/studies/One", 1)


@pytest.mark.parametrize(
    "study",
    ["../../etc", "/a/../..", "/a/$(reboot)", "/a/; rm -r ~", "/a/b\n--x", "s3://b/../c", "/é"],
)
def test_a_job_s_id_is_a_plain_word(study: str) -> None:
    assert re.fullmatch(r"tune-sentcl-[a-z0-9-]+-run1", job_id(study, 1))


def test_jobs_are_named_by_their_study() -> None:
    url = "s3://bucket/studies/My study"
    assert job_id(url, 1).startswith("tune-sentcl-my-study-")
    assert job_id(url, 1) == job_id("S3://Bucket//studies/./My study/", 1)
    assert job_id("/a/one", 1) != job_id("/b/one", 1)
    assert job_id("file:///a/my%20one", 1) == job_id("/a/my one", 1)
    assert run_of(url, job_id(url, 12)) == 12
    assert run_of(url, job_id("/a/one", 12)) is None
    assert run_of(url, None) is None
    assert run_of(url, "raysubmit_1") is None
    assert job_id("s3://bucket", 1) != job_id("s3://other", 1)
