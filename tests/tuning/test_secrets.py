"""What nobody else should read is in no file of a study, and in nothing that is printed."""

import json
import sys
from pathlib import Path

import pytest
from search_samples import LAMBDA, lambda_space, rows, run_here, run_planted, tiny_space
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.errors import BadInputError
from tune_sentcl.space import Space, load_space, space_names
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.study import Study

SECRET = "s3cr3tABC987xyz"
LINES = [f"a man plays {i},someone plays {i},{i % 3}" for i in range(48)]


def secret_space(folder: Path) -> Space:
    """Two grid points, whose rows lie under names that hold a token."""
    sources = []
    for number in range(2):
        path = folder / f"api_token={SECRET}{number}" / "pairs.csv"
        path.parent.mkdir()
        path.write_text("\n".join(["premise,hypothesis,label", *LINES[number:]]) + "\n")
        sources.append(str(path))
    grid = f"grid.data.source = {json.dumps(sources)}"
    space = tiny_space(folder / "space", grid, fixed='evaluation.data = "toy"')
    assert SECRET in str(space.configurations)
    return space


def contents(study: Path) -> str:
    """Every word of a study: its tables decoded, its other files as they are."""
    kept = Study.read(study)
    tables = [t.to_pylist() for t in (kept.trials(), kept.scores(), kept.curves())]
    texts = [p.read_bytes().decode(errors="replace") for p in study.rglob("*") if p.is_file()]
    return "\n".join([*map(str, tables), *texts])


@pytest.mark.parametrize("fails", [False, True])
def test_a_token_in_the_name_of_the_rows_is_seen_nowhere(
    tmp_path: Path, fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = secret_space(tmp_path), tmp_path / "study"
    if fails:
        space = space.with_overrides({"optimizer.lr": 1e30})
    outcome = run_here(space, study)
    assert (outcome.ran, outcome.failures) == (2, 2 if fails else 0)
    assert SECRET not in contents(study)
    assert all("HIDDEN" in row["data.source"] for row in rows(study))
    commands = (
        ["show", study],
        ["show", study, "--csv"],
        ["show", study, "--json"],
        ["plan", space.source, "--study", study, "--gpus-per-trial", 0],
    )
    for command in commands:
        done = CliRunner().invoke(app, [str(word) for word in command], env={"COLUMNS": "300"})
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output, command
    shown = "".join(capsys.readouterr())
    assert "pairs" not in shown and SECRET not in shown
    # The row's config is masked, and still the trial is known again.
    assert run_here(space, study).ran == (2 if fails else 0)


@pytest.mark.parametrize("command", ["search", "plan"])
def test_rows_that_cannot_be_read_are_named_without_their_token(
    tmp_path: Path, command: str
) -> None:
    away = f"data.source={tmp_path}/api_token={SECRET}/away.csv"
    words = [command, "smoke", "--study", str(tmp_path / "study"), "--set", away]
    done = CliRunner().invoke(app, [*words, "--set", "evaluation.data=toy"])
    assert done.exit_code == 2
    assert "api_token=HIDDEN" in done.output and SECRET not in done.output


def test_a_sampled_configuration_that_cannot_be_read_is_named_without_its_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = str(tmp_path / f"api_token={SECRET}" / "away.csv")
    ranges = f'data.source = {{ choices = ["toy", {json.dumps(away)}] }}\n{LAMBDA}'
    space = lambda_space(tmp_path / "space", 0.3, ranges=ranges, fixed='evaluation.data = "toy"')
    run_planted(space, tmp_path / "study", trials=4, sampler="random")
    shown = capsys.readouterr().err
    assert "api_token=HIDDEN" in shown and SECRET not in shown


@pytest.mark.parametrize("name", space_names())
def test_a_space_without_secrets_is_kept_word_by_word(name: str) -> None:
    text = load_space(name).text
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "url",
    [
        f"file://me:{SECRET}@localhost/tmp/study",
        f"gs://me:{SECRET}@bucket/study",
        f"s3://KEY:{SECRET}@bucket/study?nope=1",
        f"s3://KEY:{SECRET}@bucket/study?endpoint_override=127.0.0.1:1&scheme=http",
    ],
)
@pytest.mark.parametrize("place", ["study", "learn_from"])
def test_the_credentials_of_a_url_are_in_no_message(tmp_path: Path, url: str, place: str) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    with pytest.raises(BadInputError) as caught:
        if place == "study":
            run_here(space, url)  # type: ignore[arg-type]  # a URL, not a folder
        else:
            run_here(space, study, learn_from=(url,))
    assert SECRET not in str(caught.value)
    assert "HIDDEN" in str(caught.value)
    assert not study.exists()


def test_a_command_line_is_kept_without_its_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    url, setting = f"s3://KEY:{SECRET}@bucket/study", f"data.source=x.csv?token={SECRET}"
    words = ["tune-sentcl", "search", "tiny", "--study", url, "--set", setting]
    monkeypatch.setattr(sys, "argv", [*words, "--hf-token", SECRET])
    run_planted(space, study)
    assert SECRET not in contents(study)
    (command,) = json.loads((study / "study.json").read_text())["commands"]
    assert command.startswith("tune-sentcl search tiny --study s3://HIDDEN@bucket/study --set ")
