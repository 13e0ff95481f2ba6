"""Values, options and spaces that cannot be: one message a fault, exit 2, nothing written."""

from importlib import metadata
from pathlib import Path

import pytest
import torch
from cli_samples import SMOKE, TOY, changed, invoke, refused, snapshot, spawn
from disk_samples import write

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

KEY_FAULTS = [
    ("method.lamda=0.3", ["method.lamda = 0.3", "no such key", "Did you mean method.lambda?"]),
    ("optimizer.learning_rate=1", ["no such key", "learning_rate is called optimizer.lr here."]),
    ("scale=20", ["scale is called method.temperature", "scale 20 is temperature 0.05"]),
    (".=5", ["--set: . = 5", "no such key", "Known keys: method."]),
    ("method.lambda=abc", ["method.lambda = 'abc'", "must be a number", "from 0 to 1"]),
    ("method.lambda=1.5", ["method.lambda = 1.5", "must be 1 or less", "from 0 to 1"]),
    ("method.temperature=nan", ["method.temperature = nan", "must be a finite number", "above 0"]),
    ("method.num_positives=-3", ["method.num_positives = -3", 'above 0, or "all"', "default"]),
    (
        "method.name=sclx",
        [
            "method.name = 'sclx'",
            "must be one of sbert, scl",
            "Choose one of them, or load its plugin by --plugin.",
        ],
    ),
    ("method.name=MultipleNegativesRankingLoss", ["RankingLoss is called mnr here."]),
    ("method.name=NT-Xent", ["is called mnr with method.symmetric = true here."]),
    ("method=scl", ["method = 'scl'", "must be a table of keys", "method.name"]),
    ("encoder.pooling=max", ["encoder.pooling = 'max'", "'mean', 'mean_without_cls'", "default"]),
    ("encoder.checkpoint=''", ["encoder.checkpoint = ''", "must not be empty", "`minilm`"]),
    ("evaluation.suites=[transfer]", ["must be a list with sts", "default ['sts']"]),
    ("evaluation.suites=[glue]", ["evaluation.suites = 'glue'", "must be 'sts' or 'transfer'"]),
    ("seed=" + "9" * 30, ["seed = 999", "at most 18 digits"]),
]

SIX = " ".join(
    f"--objective {task}:{metric}"
    for task, metric in (
        *(("STS-B", "spearman"), ("STS-B", "pearson"), ("SICK-R", "spearman")),
        *(("SICK-R", "pearson"), ("MR", "accuracy"), ("CR", "accuracy")),
    )
)

OPTION_FAULTS = [
    ("--objective STS-B:spearman:test", ["STS-B:spearman:test", "test split", "--allow-test"]),
    ("--objective STS99:spearman", ["STS99:spearman", "score STS12, STS13", "Did you mean"]),
    (
        "--objective STS-B",
        ["--objective: STS-B", "TASK:METRIC[:SPLIT[:PROTOCOL]]", "Write the objective like"],
    ),
    ("--objective MR:accuracy", ["MR:accuracy:dev", "do not score the suite transfer", "--set"]),
    (SIX, ["STS-B:spearman, STS-B:pearson", "columns for 5 objectives", "Remove some of them."]),
    ("--seeds a,b", ["--seeds: a,b", "distinct whole numbers", "--seeds 0,1,2"]),
    ("--samples -1", ["--samples: -1", "must be 0 or more", "Pass such a number."]),
    ("--samples 2 --sampler grid", ["--samples: 2", "grid", "--sampler tpe"]),
    ("--gpus-per-trial nan", ["--gpus-per-trial: nan", "must be finite", "Pass such a number."]),
    ("--set x", ["--set: x", "must be KEY=VALUE", "--set method.lambda=0.3"]),
    ("--set data.source=snli", ["--data", "needs a data root", "TUNE_SENTCL_DATA"]),
    ("--set data.source=tony", ["data.source: tony", "must be a known", "Did you mean toy?"]),
    ("--samples 1 --learn-from gone", ["gone", "must be a study", "Check the path."]),
    pytest.param(
        *("--gpus-per-trial 1", ["--gpus-per-trial: 1", "must fit this machine", "--address"]),
        marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU"),
    ),
    ("--memory-per-trial 1000000", ["--memory-per-trial", "must fit this", "GB for trials"]),
    ("--set data.order=groups --set optimizer.batch_size=2", ["must fit into one batch"]),
    *((f"--set {setting}", ["--set", *words]) for setting, words in KEY_FAULTS),
]

BOTH = ("--set", "--gpus", "--cpus")
"""How the options begin that `train` has too."""


@pytest.mark.parametrize(("options", "words"), OPTION_FAULTS)
def test_a_bad_option(options: str, words: list[str], place: Path) -> None:
    other = ("train", *TOY) if options.startswith(BOTH) else ("plan", "smoke")
    for command in (("search", "smoke", "--study", "study"), other):
        done = invoke(*command, *options.split())
        refused(done, *words)
        assert done.out == ""
    assert snapshot(place) == {}


@pytest.mark.parametrize("command", [("train",), ("search", "smoke")])
def test_all_faults_are_told_at_once(command: tuple[str, ...], place: Path) -> None:
    bad = ["method.lambda=1.5", "method.lamda=3", "optimizer.batch_size=0", "seed=x"]
    settings = [word for setting in bad for word in ("--set", setting)]
    done = invoke(*command, "--study", "study", *settings)
    refused(done, "lambda = 1.5", "lamda = 3", "batch_size = 0", "seed = 'x'", faults=4)
    assert snapshot(place) == {}


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("search smoke", "--study"),
        ("show s --limit -1", "--limit"),
        ("evaluate toy --pooling max", "--pooling"),
    ],
)
def test_what_the_parser_refuses(arguments: str, option: str, place: Path) -> None:
    done = invoke(*arguments.split())
    assert (done.code, done.out) == (2, "")
    assert option in done.err.splitlines()[-1]
    assert snapshot(place) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train --set method.lambda.x=1", ["{ x = 1 }", "must be a number", "from 0"]),
        ("plan smoke --set method.lambda.x=1", ["lambda.x = 1", "a value, not a table"]),
        ("evaluate toy --toy --max-length 1", ["--max-length: 1", "must be 3 or more"]),
        (
            "train --data . --set data.source=snli --set evaluation.data=toy",
            ["data.source = snli", "must hold nli/snli_train.parquet", "Copy the file there"],
        ),
        ("train --data missing --set data.source=snli", ["missing", "folder does not exist"]),
        ("search smoke --study memory://x --address local", ["memory://x", "lies in one process"]),
        ("train --objective mine:spearman", ["do not score this task"]),
    ],
)
def test_options_of_other_commands(arguments: str, words: list[str], place: Path) -> None:
    refused(invoke(*arguments.split()), *words)
    assert snapshot(place) == {}


SPACE_FAULTS: list[tuple[str | bytes, list[str]]] = [
    (SMOKE + "\na = [", ["must be a readable TOML file", "Correct the file."]),
    (SMOKE.encode() + b"# \xff", ["readable TOML", "0xff", "Correct the file."]),
    ("seed = [1]\n" + SMOKE, ["seed = [1]", "no such key", "Did you mean seeds?"]),
    (SMOKE + "\n[quux]\n", ["quux", "no such key", "Known keys: block"]),
    (
        SMOKE[: SMOKE.index("[search.ranges]")] + "[search]\nranges = 5\n",
        ["search.ranges = 5", "must be a table"],
    ),
    *(
        (changed(SMOKE, old, new), words)
        for old, new, words in [
            ("fixed.method.name", "fixd.method.name", ["Did you mean block.fixed?"]),
            ("[[block]]", "[block]", ["block = {", "must be one or more [[block]] tables"]),
            ("low = 0.0, high = 1.0", "low = 1.0, high = 0.0", ["{ low = 1.0", "low < high"]),
            ("low = 0.05", "low = 0.0", ["temperature = { low = 0.0", "log: low > 0"]),
            ('choices = ["scl"]', 'choices = ["scl", "sclx"]', ["'sclx'", "must be one of"]),
            ("[0.3, 0.7]", "0.3", ["lambda = 0.3", "must be a list of values", "[0.1, 0.3]"]),
            ('fixed.method.name = "scl"', "", ["method.name", "must be one of sbert"]),
            ("seeds = [0]", 'seeds = ["a"]', ["seeds = ['a']", "distinct whole numbers"]),
        ]
    ),
]


@pytest.mark.parametrize(("text", "words"), SPACE_FAULTS)
@pytest.mark.parametrize("command", ["search", "spaces"])
def test_a_bad_space(command: str, text: str | bytes, words: list[str], place: Path) -> None:
    write(place / "mine.toml", text)
    before = snapshot(place)
    study = ("--study", "study") if command == "search" else ()
    done = invoke(command, "mine.toml", *study)
    refused(done, "mine.toml", *words)
    assert done.out == ""
    assert snapshot(place) == before


def test_all_faults_of_a_space_are_told_at_once(place: Path) -> None:
    text = changed(SMOKE, "[0.3, 0.7]", "[1.3, 0.5, 1.7]\ngrid.optimizer.epochs = [0]")
    write(place / "mine.toml", text)
    done = invoke("plan", "mine.toml")
    refused(done, "lambda = 1.3", "lambda = 1.7", "optimizer.epochs = 0", faults=3)
    write(place / "mine.toml", "seeds = 0\nsumary = ''\nname = 3")
    done = invoke("plan", "mine.toml")
    refused(done, "sumary", "seeds = 0", "name = 3", "block", faults=4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("scl/lamda", ["scl/lamda", "no preset has this name", "Did you mean scl/lambda?"]),
        ("zzz", ["zzz", "no preset has this name", "tune-sentcl spaces"]),
        ("mine", ["mine", "no preset has this name", "must end in .toml"]),
        ("none.toml", ["none.toml", "this file does not exist", "tune-sentcl spaces"]),
        ("folder.toml", ["folder.toml", "must be a readable TOML file"]),
    ],
)
def test_a_space_that_is_not_there(name: str, words: list[str], place: Path) -> None:
    write(place / "mine", SMOKE)
    (place / "folder.toml").mkdir()
    before = snapshot(place)
    for command in (["plan", name], ["search", name, "--study", "study"], ["spaces", name]):
        refused(invoke(*command), *words)
    assert snapshot(place) == before


def test_a_checkpoint_of_an_unknown_name(place: Path) -> None:
    """A process of its own: the hub's client reads once that it must not ask the network."""
    done = spawn("evaluate", "minilmm", "--toy", cwd=place)
    refused(done, "'minilmm'", "hub", "Did you mean minilm?")
    assert done.out == ""
    assert snapshot(place) == {}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('data.columns={"anchor":"question"}', ["data.columns", "with = in place of :"]),
        ("data.order=groups", ["data.order", "that reads other rows than labeled pairs"]),
        ("method.temperature=-1", ["method.temperature = -1", "must be above 0"]),
    ],
)
def test_a_fault_is_told_once_for_all_methods(setting: str, words: list[str], place: Path) -> None:
    blocks = "".join(
        f'[[block]]\nfixed.method.name = "{name}"\n' for name in ("none", "mnr", "cosent", "angle")
    )
    head = 'name = "losses"\nsummary = "x"\n[fixed]\ndata.source = "toy"\n'
    write(place / "losses.toml", head + blocks)
    refused(invoke("plan", "losses.toml", "--set", setting), *words, faults=1)


def test_the_version_is_printed() -> None:
    done = invoke("--version")
    assert (done.code, done.out) == (0, f"tune-sentcl {metadata.version('tune-sentcl')}\n")
