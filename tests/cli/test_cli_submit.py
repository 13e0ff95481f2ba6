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
    own = {"space", "study", "address"}
    arguments = [
        word
        for number, (name, option) in enumerate(theirs.items(), 2)
        if name not in own
        for word in given(option, number)
    ]
    written = ["smoke", "--study", "/disk/study", *arguments]
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


def test_what_was_not_given_is_left_to_the_cluster() -> None:
    context = SUBMIT.make_context("submit", ["smoke", "--trials", "0"])
    assert list(command_words(context, "s3://b/s")) == [
        *("python", "-m", "tune_sentcl", "search", "space.toml"),
        *("--study", "s3://b/s", "--address", "auto", "--trials=0"),
    ]


def test_a_dry_run_needs_no_study_no_cluster_and_no_network() -> None:
    code = (
        "import sys\n"
        "def closed(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        "        raise SystemExit(f'network: {event}')\n"
        "sys.addaudithook(closed)\n"
        "from tune_sentcl.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    assert 'ray' not in sys.modules\n"
    )
    done = run_code(code, *DRY, "--seeds", "0,1", "--set", "data.limit=32")
    assert done.code == 0, done.err
    for words in (
        "command: python -m tune_sentcl search space.toml --study STUDY --address auto",
        "--set=data.limit=32 --seeds=0,1\n",
        "submission id: tune-sentcl-STUDY-DIGEST-runN",
        "tune_sentcl-0.1.0.dist-info ",
        "space.toml ",
    ):
        assert words in done.out, done.out
    named = 'name = "smoke"\n'  # what the file's own name would say
    assert f" {len(SMOKE.encode()) + len(named)}\n" in done.out


def test_a_file_of_the_users_own_is_sent(tmp_path: Path) -> None:
    path = write(
        tmp_path / "my spaces" / "mine.toml", SMOKE.replace('"smoke"', '"mine"') + "# é\n"
    )
    done = invoke("submit", path, "--dry-run", "--study", "/disk/mine")
    assert done.code == 0
    assert str(tmp_path) not in done.out
    named = 'name = "mine"\n'
    assert f" {path.stat().st_size + len(named)}\n" in done.out
    assert "tune-sentcl-mine-" in done.out


def test_pins_go_into_the_environment() -> None:
    done = invoke(*DRY, "--pip")
    assert '"setup_timeout_seconds": 840' in done.out
    assert '"torch==' in done.out and '"peft==' not in done.out
    done = invoke(*DRY, "--pip", "--set", "encoder.lora_rank=4", "--set", "evaluation.own=mteb:X")
    assert '"peft==' in done.out and '"mteb==' in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["smoke", "--max-time", "5"], ["--max-time: 5", "units"]),
        (["smoke", "--objective", "garbage"], ["--objective: garbage"]),
        (["smoke", "--study", "/x/y", "--learn-from", "/x/./y"], ["its own study"]),
        (["smoke", "--study", "foo://x"], ["foo://x: must begin with"]),
        (["smoke", "--study", "memory://x"], ["lies in one process"]),
        (["smok"], ["SPACE: smok", "smoke?"]),
        (["smoke", "--study", "studies/one"], ["--study: studies/one", "URL or an absolute path"]),
        (["smoke", "--learn-from", "../a"], ["--learn-from: ../a", "URL or an absolute path"]),
        (["smoke", "--study", "s3://key:s3cr3t@b/s"], ["--study: a URL must have no user"]),
        (
            ["smoke", "--learn-from", "s3://b/s?secret_key=s3cr3t"],
            ["--learn-from: a URL must have no user"],
        ),
    ],
)
def test_what_cannot_be_is_refused_here(arguments: list[str], words: list[str]) -> None:
    done = invoke("submit", *arguments, "--dry-run")
    refused(done, *words)
    assert "s3cr3t" not in done.out + done.err


def test_what_only_this_machine_can_read_is_refused_here(place: Path) -> None:
    for name in ("toy", "mine", "models/one"):
        (place / name).mkdir(parents=True)
    write(place / "rows.csv", "a")
    for key, value in (("encoder.checkpoint", "mine"), ("data.source", "rows.csv")):
        done = invoke("submit", "smoke", "--set", f"{key}={value}", "--dry-run")
        refused(done, key, repr(value), "is a relative path", "absolute path")
    done = invoke("submit", "smoke", "--set", "data.source=toy + rows.csv", "--dry-run")
    refused(done, "data.source", "'rows.csv'", "is a relative path")
    for name in ("mine", "models/one"):
        refused(invoke(*DRY, "--set", f"encoder.checkpoint={name}"), repr(name))
    for name in ("toy", str(place / "mine"), "hub/name"):
        assert invoke(*DRY, "--set", f"encoder.checkpoint={name}").code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('source = "toy"', 'source = "rows.csv"'),
        ('checkpoint = "toy"', 'checkpoint = "models/one"'),
        ("every = 4", 'every = 4\nevaluation.own = ["mine=judged"]'),
    ],
)
def test_relative_paths_are_refused_from_every_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    (place / "w2/models/one").mkdir(parents=True)
    write(place / "w2/rows.csv", "a")
    assert old in SMOKE
    write(place / "w2/my.toml", SMOKE.replace(old, new))
    refused(invoke("submit", "w2/my.toml", "--dry-run"), "is a relative path")
    monkeypatch.chdir(place / "w2")
    refused(invoke("submit", "my.toml", "--dry-run"), "is a relative path")


def test_a_study_is_needed_to_submit() -> None:
    refused(invoke("submit", "smoke"), "--study: must be given")


@pytest.mark.parametrize("command", [("submit", "smoke", "--study"), ("jobs", "status")])
@pytest.mark.parametrize("address", ["head:10001", "ray://head:10001", "local", "auto"])
def test_an_address_that_is_no_dashboards_is_refused(
    command: tuple[str, ...], address: str
) -> None:
    done = invoke(*command, "/disk/study", "--address", "http://me:s3cr3t@head:8265")
    refused(done, "--address: a URL must have no user")
    assert "s3cr3t" not in done.out + done.err
    done = invoke(*command, "/disk/study", "--address", address)
    refused(done, f"--address: {address}", "URL of a cluster's dashboard", "http://HEAD:8265")


def test_an_address_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")  # for `search`, and no dashboard's
    refused(invoke("jobs", "stop", "/disk/study"), "--address: ", "RAY_API_SERVER_ADDRESS")


def test_without_the_job_client_the_extra_is_named() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; from tune_sentcl.cli import main; main()"
    done = run_code(code, "jobs", "status", "/s", "--address", "http://127.0.0.1:1")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert 'pip install "tune-sentcl[cluster]"' in done.err
