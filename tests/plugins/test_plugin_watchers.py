"""Watchers of a user's own files: what they are told, and watchers that fail."""

from pathlib import Path

import pytest
from plugin_samples import WATCHER, margin_space, registry, written
from search_samples import rows, run_here

from tune_sentcl.errors import ConfigError
from tune_sentcl.plugins import load_plugins
from tune_sentcl.watch.trackers import check_tracking

__all__ = ["registry"]


def watch(folder: Path, code: str) -> Path:
    (folder / "lines.py").write_text(code)
    written(folder)
    space = margin_space(folder, folder / "lines.py")
    assert run_here(space, folder / "study", track=("lines",)).failures == 0
    return folder / "study"


def test_a_watcher_is_told_of_each_trial_and_counts_in_no_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = watch(tmp_path, WATCHER)
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {line[0] for line in told} == {"begin", "point", "end"}
    stored = {row["trial_id"]: row for row in rows(study)}
    ends = {line[1]: line[2:] for line in told if line[0] == "end"}
    assert ends == {name: [str(row["steps"]), "finished"] for name, row in stored.items()}
    begun = {line[1]: line[2:] for line in told if line[0] == "begin"}
    assert begun == {n: [r["configuration"], "margin_cosine"] for n, r in stored.items()}
    (tmp_path / "lines.py").write_text(f"{WATCHER}\n")
    again = margin_space(tmp_path, tmp_path / "lines.py")
    assert run_here(again, study, track=("lines",)).ran == 0


@pytest.mark.parametrize("method", ["__init__", "begin", "point", "end"])
def test_a_watcher_that_raises_is_named_once_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    head, _, tail = WATCHER.partition(f"    def {method}(")
    signature, _, tail = tail.partition("\n")
    code = f"{head}    def {method}({signature}\n        raise OSError('full')\n{tail}"
    study = watch(tmp_path, code)
    assert {row["status"] for row in rows(study)} == {"finished"}
    line = code.splitlines().index("        raise OSError('full')") + 1
    said = f"lines failed (OSError: full, lines.py, line {line}); no further trials are tracked"
    assert capsys.readouterr().err.count(said) == 1


def test_the_cluster_needs_nothing_of_a_watcher(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"must be one of .*, tensorboard. Choose one of them, or load its"
    ):
        check_tracking(["lines"], "s3://b/x", on_cluster=True)
    (tmp_path / "lines.py").write_text(WATCHER)
    load_plugins([tmp_path / "lines.py"])
    check_tracking(["lines"], "s3://b/x", on_cluster=True)
