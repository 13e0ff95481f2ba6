"""`submit` before anything is sent: every option of `search`, refusals, and the dry run."""

import inspect
import shlex
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
import typer.main
from cli_samples import SMOKE, invoke, refused, run_code
from disk_samples import write

from tune_sentcl.cli import app
from tune_sentcl.cli.search_commands import search
from tune_sentcl.cli.submitting import command_words

pytest_plugins = ["cli_fixtures"]

COMMANDS: Any = typer.main.get_command(app)
SEARCH, SUBMIT = COMMANDS.commands["search"], COMMANDS.commands["submit"]
DRY = ("submit", "smoke", "--dry-run")


def option_names(command: Any) -> dict[str, Any]:
    return {option.name: option for option in command.params}


def given(option: Any, number: int) -> list[str]:
    """An option as a user writes it, with a value of its kind that is not the default."""
    name = option.opts[-1]
    if option.param_type_name == "argument":
        return ["smoke"]
    if option.is_flag:
        return [name]
    kind = typing.get_args(inspect.signature(search).parameters[option.name].annotation)[0]
    value = typing.get_args(kind)[-1] if typing.get_origin(kind) is Literal else str(number)
    return [name, value, name, f'-it\'s "{number}"'] if option.multiple else [name, value]


def test_every_option_of_search_is_passed_on() -> None:
    theirs, ours = option_names(SEARCH), option_names(SUBMIT)
    assert theirs.keys() == inspect.signature(search).parameters.keys()
    own = {"space", "study", "address", "plugins", "launcher"}
    arguments = [
        word
        for number, (name, option) in enumerate(theirs.items(), 2)
        if name not in own
        for word in given(option, number)
    ]
    written = ["smoke", "--study", "/disk/study", *arguments]
    assert "launcher" not in ours, "a job runs on the cluster's Ray"
    context = SUBMIT.make_context("submit", [*written, "--follow", "--pip"])
    line = shlex.join(command_words(context, "/disk/study"))
    module, words = shlex.split(line)[:4], shlex.split(line)[4:]
    assert module == ["python", "-m", "tune_sentcl", "search"]
    sent = SEARCH.make_context("search", words).params
    expected = SEARCH.make_context("search", written).params
    assert sent == {**expected, "space": "space.toml", "address": "auto"}
    assert all(sent[name] != theirs[name].default for name in theirs.keys() - own)
    for name in theirs.keys() - own:
        assert ours[name].help == theirs[name].help


def test_a_dry_run_needs_no_study_no_cluster_and_no_network() -> None:
    code = (
        "import sys\n"
        "def closed(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        "        raise SystemExit(f'network: {event}')\n"
        "sys.addaudithook(closed)\n"
        "from tune_sentcl.cli import main\n"
        "main()\n"
    )
    done = run_code(code, *DRY, "--seeds", "0,1", "--set", "data.limit=32")
    assert done.code == 0, done.err
    for words in (
        "command: python -m tune_sentcl search space.toml --study STUDY --address auto",
        "--set=data.limit=32 --seeds=0,1\n",
        "submission id: tune-sentcl-STUDY-DIGEST-runN",
    ):
        assert words in done.out, done.out


def test_a_file_of_the_users_own_is_sent(tmp_path: Path) -> None:
    path = write(
        tmp_path / "my spaces" / "mine.toml", SMOKE.replace('"smoke"', '"mine"') + "# é\n"
    )
    done = invoke("submit", path, "--dry-run", "--study", "/disk/mine")
    assert done.code == 0
    assert str(tmp_path) not in done.out
    assert "tune-sentcl-mine-" in done.out


def test_pins_go_into_the_environment() -> None:
    done = invoke(*DRY, "--pip")
    assert '"torch==' in done.out and '"peft==' not in done.out
    done = invoke(*DRY, "--pip", "--set", "encoder.lora_rank=4", "--set", "evaluation.own=mteb:X")
    assert '"peft==' in done.out and '"mteb==' in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["smoke", "--objective", "garbage"], ["--objective: garbage"]),
        (["smoke", "--study", "/x/y", "--learn-from", "/x/./y"], ["its own study"]),
        (["smoke", "--study", "foo://x"], ["foo://x: must begin with"]),
        (["smoke", "--study", "studies/one"], ["--study: studies/one", "URL or an absolute path"]),
        (["smoke", "--study", "s3://key:s3cr3t@b/s"], ["--study: must not contain a user"]),
        (
            ["smoke", "--learn-from", "s3://b/s?secret_key=s3cr3t"],
            ["--learn-from: must not contain a user"],
        ),
    ],
)
def test_what_cannot_be_is_refused_here(arguments: list[str], words: list[str]) -> None:
    done = invoke("submit", *arguments, "--dry-run")
    refused(done, *words)
    assert "s3cr3t" not in done.out + done.err


def test_a_study_is_needed_to_submit() -> None:
    refused(invoke("submit", "smoke"), "--study: must be given")


@pytest.mark.parametrize("address", ["", "head:10001", "ray://head:10001", "local", "auto"])
def test_an_address_that_is_no_dashboards_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")  # for `search`, and no dashboard's
    given = ("--address", address) if address else ()
    done = invoke("submit", "smoke", "--study", "/disk/study", *given)
    shown = address or "127.0.0.1:6379"
    refused(done, f"--address: {shown}: must be the URL of a Ray dashboard", "http://HEAD:8265")


def test_without_the_job_client_the_extra_is_named() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; from tune_sentcl.cli import main; main()"
    words = ("submit", "smoke", "--study", "/s", "--address", "http://127.0.0.1:1")
    done = run_code(code, *words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert 'pip install "tune-sentcl[cluster]"' in done.err
