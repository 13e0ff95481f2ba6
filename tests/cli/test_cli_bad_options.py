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
    ("lambda=0.3", ["lambda = 0.3", "no such key", "Did you mean method.lambda?"]),
    ("optimizer.foo.bar=1", ["optimizer.foo.bar = 1", "no such key"]),
    ("optimizer.learning_rate=1", ["no such key", "learning_rate is called optimizer.lr here."]),
    ("scale=20", ["scale is called method.temperature", "scale 20 is temperature 0.05"]),
    ("trainer.seed=1", ["no such key", "Did you mean seed?"]),
    (".=5", ["--set: . = 5", "no such key", "Known keys: method."]),
    ("method.lambda=abc", ["method.lambda = 'abc'", "must be a number", "from 0 to 1"]),
    ("method.lambda=true", ["method.lambda = true", "must be a number", "default 0.3"]),
    ("method.lambda=", ["method.lambda = ''", "must be a number"]),
    ("method.lambda=1.5", ["method.lambda = 1.5", "must be 1 or less", "from 0 to 1"]),
    ("method.lambda=-0.1", ["method.lambda = -0.1", "must be 0 or more", "from 0 to 1"]),
    ("method.temperature=0", ["method.temperature = 0", "must be above 0", "default 1.0"]),
    ("method.temperature=nan", ["method.temperature = nan", "must be a finite number", "above 0"]),
    ("method.temperature=inf", ["method.temperature = inf", "must be a finite number", "above 0"]),
    ("method.num_positives=-3", ["method.num_positives = -3", 'above 0, or "all"', "default"]),
    ("method.num_negatives=0", ["method.num_negatives = 0", 'above 0, or "all"', "default"]),
    ("method.num_negatives=1.5", ["method.num_negatives = 1.5", "whole number", "default"]),
    ("method.name=sclx", ["method.name = 'sclx'", "must be one of sbert, scl", "Choose one."]),
    ("method=scl", ["method = 'scl'", "must be a table of keys", "method.name"]),
    ("method.share=0.5", ["method.share = 0.5", "only method conisi", "Drop it."]),
    ("optimizer.batch_size=0", ["optimizer.batch_size = 0", "must be 1 or more", "rows per step"]),
    ("optimizer.batch_size=1.5", ["optimizer.batch_size = 1.5", "must be a whole number"]),
    ("optimizer.warmup=1", ["optimizer.warmup = 1", "must be below 1", "default 0.1"]),
    ("optimizer.lr=1e400", ["optimizer.lr = inf", "must be a finite number"]),
    ("encoder.pooling=max", ["encoder.pooling = 'max'", "'mean', 'mean_without_cls'", "default"]),
    ("encoder.checkpoint=''", ["encoder.checkpoint = ''", "must not be empty", "`minilm`"]),
    ("encoder.share_duplicates=1", ["share_duplicates = 1", "must be true or false"]),
    ("encoder.max_length=1", ["encoder.max_length = 1", "3 or more, or", "tokens"]),
    ("data.limit=none", ["data.limit = 'none'", "must be a whole number", "only the first rows"]),
    ("data.order=random", ["data.order = 'random'", "'groups' or 'shuffled_groups'"]),
    (
        "evaluation.suites=[transfer]",
        ["evaluation.suites = ['transfer']", "must be a list with sts", "default ['sts']"],
    ),
    ("evaluation.suites=3", ["evaluation.suites = 3", "must be a list"]),
    ("evaluation.suites=[glue]", ["evaluation.suites = 'glue'", "must be 'sts' or 'transfer'"]),
    ("evaluation.protocols=[logreg]", ["evaluation.protocols = 'logreg'", "'logreg-10fold'"]),
    ("evaluation.classifier_seeds=0", ["classifier_seeds = 0", "must be 1 or more"]),
    ("seed=-1", ["seed = -1", "must be 0 or more"]),
    ("seed=" + "9" * 30, ["seed = 999", "at most 18 digits"]),
]


@pytest.mark.parametrize("command", ["train", "search", "plan"])
@pytest.mark.parametrize(
    ("setting", "words"), [pytest.param(*case, id=case[0][:30]) for case in KEY_FAULTS]
)
def test_a_bad_value(command: str, setting: str, words: list[str], place: Path) -> None:
    study = () if command == "plan" else ("--study", "study")
    space = () if command == "train" else ("smoke",)
    done = invoke(command, *space, *study, *TOY, "--set", setting)
    refused(done, "--set", *words)
    assert done.out == ""
    assert snapshot(place) == {}


def test_a_key_below_a_value(place: Path) -> None:
    setting = ["--set", "method.lambda.x=1"]
    refused(invoke("train", *setting), "method.lambda = { x = 1 }", "must be a number", "from 0")
    refused(invoke("plan", "smoke", *setting), "method.lambda.x = 1", "a value, not a table")
    assert snapshot(place) == {}


@pytest.mark.parametrize("command", [("train",), ("search", "smoke")])
def test_all_faults_are_told_at_once(command: tuple[str, ...], place: Path) -> None:
    bad = ["method.lambda=1.5", "method.lamda=3", "optimizer.batch_size=0", "seed=x"]
    settings = [word for setting in bad for word in ("--set", setting)]
    done = invoke(*command, "--study", "study", *settings)
    refused(done, "lambda = 1.5", "lamda = 3", "batch_size = 0", "seed = 'x'", faults=4)
    assert snapshot(place) == {}


SIX = " ".join(
    f"--objective {task}:{metric}"
    for task, metric in (
        *(("STS-B", "spearman"), ("STS-B", "pearson"), ("SICK-R", "spearman")),
        *(("SICK-R", "pearson"), ("MR", "accuracy"), ("CR", "accuracy")),
    )
)

OPTION_FAULTS = [
    ("--objective STS-B:spearman:test", ["STS-B:spearman:test", "test split", "--allow-test"]),
    ("--objective STS12:spearman", ["STS12:spearman", "test split", "STS-B:spearman:dev"]),
    ("--objective STS99:spearman", ["STS99:spearman", "measure STS12, STS13", "Did you mean"]),
    ("--objective STS-B", ["--objective: STS-B", "TASK:METRIC[:SPLIT[:PROTOCOL]]", "Write it"]),
    ("--objective STS-B:accuracy", ["STS-B:accuracy", "spearman or pearson", "STS-B:spearman"]),
    ("--objective MR:accuracy", ["MR:accuracy:dev", "do not measure the suite transfer", "--set"]),
    (SIX, ["STS-B:spearman, STS-B:pearson", "columns for 5 objectives", "Drop some."]),
    ("--seeds a,b", ["--seeds: a,b", "distinct whole numbers", "--seeds 0,1,2"]),
    ("--seeds 0,0", ["--seeds: 0,0", "distinct whole numbers", "--seeds 0,1,2"]),
    ("--seeds 9999999999999999999", ["--seeds: 9999", "distinct whole numbers"]),
    ("--trials -1", ["--trials: -1", "must be 0 or more", "Correct it."]),
    ("--trials 2 --sampler grid", ["--trials: 2", "grid", "--sampler tpe"]),
    ("--budget 2.5 --sampler grid", ["--budget: 2.5", "grid", "--sampler tpe"]),
    ("--budget -1", ["--budget: -1", "must be 1 or more", "Correct it."]),
    ("--keep -1", ["--keep: -1", "must be 0 or more", "Correct it."]),
    ("--max-concurrent 0", ["--max-concurrent: 0", "must be 1 or more", "Correct it."]),
    (
        "--gpus-per-trial 1.5",
        ["--gpus-per-trial: 1.5", "must be 1 or less", "Correct it."],
    ),
    ("--gpus-per-trial nan", ["--gpus-per-trial: nan", "must be finite", "Correct it."]),
    ("--set x", ["--set: x", "must be KEY=VALUE", "--set method.lambda=0.3"]),
    ("--set data.source=snli", ["--data", "needs a data root", "TUNE_SENTCL_DATA"]),
    (
        "--data missing --set data.source=snli",
        ["missing", "the folder does not exist", "downstream/", "TUNE_SENTCL_DATA"],
    ),
    (
        "--set data.source=tony --set evaluation.data=toy",
        ["data.source: tony", "must be a known source", "Did you mean toy?"],
    ),
]


@pytest.mark.parametrize(
    ("options", "words"), [pytest.param(*case, id=case[0][2:40]) for case in OPTION_FAULTS]
)
def test_a_bad_option(options: str, words: list[str], place: Path) -> None:
    done = invoke("search", "smoke", "--study", "study", *options.split())
    refused(done, *words)
    assert done.out == ""
    assert snapshot(place) == {}


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("search smoke", "--study"),
        ("search smoke --study s --trials x", "--trials"),
        ("search smoke --study s --sampler best", "--sampler"),
        ("search smoke --study s --sampler nsga2", "--sampler"),
        ("show s --limit -1", "--limit"),
        ("show s --limit all", "--limit"),
        ("search smoke --study s --gpus-per-trial many", "--gpus-per-trial"),
        ("evaluate toy --suite glue", "--suite"),
        ("evaluate toy --pooling max", "--pooling"),
        ("train --lambda 0.3", "--lambda"),
        ("sreach smoke", "sreach"),
        ("plan", "space"),
    ],
)
def test_what_the_parser_refuses(arguments: str, option: str, place: Path) -> None:
    done = invoke(*arguments.split())
    assert done.code == 2
    assert done.out == ""
    assert option in done.err.splitlines()[-1]
    assert snapshot(place) == {}


def test_options_of_other_commands(place: Path) -> None:
    short = invoke("evaluate", "toy", "--toy", "--max-length", "1")
    refused(short, "--max-length: 1", "must be 3 or more", "Correct it.")
    refused(invoke("show", "study", "--json", "--csv"), "--json, --csv", "Keep one of them.")
    for option in ("--keep -1", "--max-concurrent 0", "--gpus-per-trial 1.5"):
        name, value = option.split()
        refused(invoke("plan", "smoke", name, value), f"{name}: {value}", "must be")
    asked = ("--objective", "STS12:spearman")
    refused(invoke("plan", "smoke", *asked), "test split", "--allow-test-objective")
    assert invoke("plan", "smoke", *asked, "--allow-test-objective").code == 0
    refused(invoke("train", *TOY, *asked), "test split", "--allow-test-objective")
    refused(invoke("train", *TOY, "--objective", "mine:spearman"), "measure no such task")
    assert snapshot(place) == {}


def test_studies_to_learn_from_are_read_before_the_study_is_made(place: Path) -> None:
    sampled = ("--trials", "1", "--learn-from", "gone")
    for command in ("search", "plan"):
        done = invoke(command, "smoke", "--study", "study", *sampled)
        refused(done, "gone", "must be a study", "Check the path.")
    assert snapshot(place) == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(place: Path) -> None:
    for command in (("train",), ("search", "smoke", "--study", "s")):
        done = invoke(*command, *TOY, "--gpus-per-trial", "1")
        refused(done, "--gpus-per-trial: 1", "must fit this machine", "--address")
    assert snapshot(place) == {}


@pytest.mark.parametrize("command", [("train",), ("search", "smoke", "--study", "s")])
@pytest.mark.parametrize("cpus, rule", [("0", "must be 1 or more"), ("9999", "must fit this")])
def test_cores_that_are_not_there(
    command: tuple[str, ...], cpus: str, rule: str, place: Path
) -> None:
    refused(invoke(*command, *TOY, "--cpus-per-trial", cpus), "--cpus-per-trial", rule)
    assert snapshot(place) == {}


def test_a_premise_that_fits_no_batch_is_found_before_the_study_is_made(place: Path) -> None:
    small = ("--set", "data.order=groups", "--set", "optimizer.batch_size=2")
    for command in (("train", *TOY), ("search", "smoke", "--study", "s")):
        done = invoke(*command, *small)
        refused(done, "optimizer.batch_size = 2", "must fit into one batch", "data.order to file")
    assert snapshot(place) == {}


def test_a_source_is_looked_for_before_its_evaluation_sets(place: Path) -> None:
    done = invoke("search", "smoke", "--study", "s", "--set", "data.source=tony")
    refused(done, "tony", "Did you mean toy?")
    assert snapshot(place) == {}


SPACE_FAULTS = [
    ("broken TOML", SMOKE + "\na = [", ["must be a readable TOML file", "Correct the file."]),
    ("broken UTF-8", SMOKE.encode() + b"# \xff", ["readable TOML", "0xff", "Correct the file."]),
    ("unknown key", "seed = [1]\n" + SMOKE, ["seed = [1]", "no such key", "Did you mean seeds?"]),
    ("unknown table", SMOKE + "\n[quux]\n", ["quux", "no such key", "Known keys: block"]),
    (
        "unknown part of a block",
        changed(SMOKE, "fixed.method.name", "fixd.method.name"),
        ["block.fixd", "no such key", "Did you mean block.fixed?"],
    ),
    (
        "block of another type",
        changed(SMOKE, "[[block]]", "[block]"),
        ["block = {", "must be one or more [[block]] tables", "smoke.toml"],
    ),
    (
        "grid of another type",
        changed(SMOKE, "grid.method.lambda = [0.3, 0.7]", "grid = 5"),
        ["block.grid = 5", "must be a table", "smoke.toml"],
    ),
    (
        "ranges of another type",
        SMOKE[: SMOKE.index("[search.ranges]")] + "[search]\nranges = 5\n",
        ["search.ranges = 5", "must be a table", "smoke.toml"],
    ),
    (
        "low above high",
        changed(SMOKE, "low = 0.0, high = 1.0", "low = 1.0, high = 0.0"),
        ["[search.ranges]", "method.lambda = { low = 1.0", "low < high", "Correct the range."],
    ),
    (
        "logarithm of 0",
        changed(SMOKE, "low = 0.05", "low = 0.0"),
        ["[search.ranges]", "method.temperature = { low = 0.0", "log: low > 0", "Correct"],
    ),
    (
        "illegal end of a range",
        changed(SMOKE, "low = 0.0, high = 1.0", "low = 0.0, high = 1.5"),
        ["[search.ranges]", "method.lambda = 1.5", "must be 1 or less", "from 0 to 1"],
    ),
    (
        "range of an unknown key",
        changed(SMOKE, "method.temperature = {", "method.temprature = {"),
        ["method.temprature", "no such key", "Did you mean method.temperature?"],
    ),
    (
        "range of an unknown method",
        changed(SMOKE, 'choices = ["scl"]', 'choices = ["scl", "sclx"]'),
        ["[search.ranges]", "method.name = 'sclx'", "must be one of", "Choose one."],
    ),
    (
        "illegal grid value",
        changed(SMOKE, "[0.3, 0.7]", "[0.3, 1.7]"),
        ["method.lambda = 1.7", "must be 1 or less", "from 0 to 1"],
    ),
    (
        "grid value without a list",
        changed(SMOKE, "[0.3, 0.7]", "0.3"),
        ["method.lambda = 0.3", "must be a list of values", "[0.1, 0.3]"],
    ),
    (
        "no method",
        changed(SMOKE, 'fixed.method.name = "scl"', ""),
        ["method.name", "must be one of sbert", "Choose one."],
    ),
    (
        "seeds of another type",
        changed(SMOKE, "seeds = [0]", 'seeds = ["a"]'),
        ["seeds = ['a']", "distinct whole numbers", "smoke.toml"],
    ),
    (
        "no seeds",
        changed(SMOKE, "seeds = [0]", "seeds = []"),
        ["seeds = []", "not empty", "smoke.toml"],
    ),
    (
        "no name",
        'name = ""\n' + SMOKE,
        ["name = ''", "must be text, not empty", "smoke.toml"],
    ),
    (
        "unknown key in fixed",
        changed(SMOKE, "data.limit = 192", "data.limt = 192"),
        ["data.limt = 192", "no such key", "Did you mean data.limit?"],
    ),
]


@pytest.mark.parametrize(
    ("text", "words"), [pytest.param(*case[1:], id=case[0]) for case in SPACE_FAULTS]
)
@pytest.mark.parametrize("command", ["search", "plan", "spaces"])
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
        ("smok", ["smok", "no space of this name", "Did you mean smoke?"]),
        ("scl/lamda", ["scl/lamda", "no space of this name", "Did you mean scl/lambda?"]),
        ("zzz", ["zzz", "no space of this name", "tune-sentcl spaces"]),
        ("", ["''", "no space of this name", "tune-sentcl spaces"]),
        ("mine", ["mine", "no space of this name", "must end in .toml"]),
        ("none.toml", ["none.toml", "no such file", "tune-sentcl spaces"]),
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
        ('data.columns={"anchor":"question"}', ["data.columns", "with = instead of :"]),
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
