"""The commit is the one that git names."""

import subprocess
from pathlib import Path

import pytest

from tune_sentcl.store.provenance import git_commit, library_versions


def test_the_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit() is None
    (tmp_path / "file").write_text("a")
    try:
        subprocess.run(["git", "init", "-q"], check=True)
    except FileNotFoundError:
        pytest.skip("there is no git here")
    subprocess.run(["git", "add", "file"], check=True)
    who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "-q", "-m", "x", "--no-verify"], check=True)
    commit = git_commit()
    assert commit is not None
    assert len(commit) == 40
    (tmp_path / "untracked").write_text("b")
    assert git_commit() == commit
    (tmp_path / "file").write_text("b")
    assert git_commit() == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")
    assert git_commit() is None


def test_versions_name_the_libraries() -> None:
    assert {"python", "torch", "tune_sentcl"} <= set(library_versions())
