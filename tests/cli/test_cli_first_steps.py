"""The first commands: `init`, `knobs`, and `evaluate` of two encoders."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_samples import invoke, refused, rows

from tune_sentcl.config import knobs
from tune_sentcl.judging.evidence import CONFIRMATION_SEEDS
from tune_sentcl.space import load_space
from tune_sentcl.tuning import plan

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

WORDS = [f"text number {number}" for number in range(300)]


def write(name: str, header: str, *columns: list[str], separator: str = ",") -> Path:
    lines = [header, *map(separator.join, zip(*columns, strict=True))]
    Path(name).write_text("\n".join(lines), encoding="utf-8")
    return Path(name)


INIT = ("init", "mine.toml", "--rows", "mine.csv", "--encoder", "toy")
ANSWERS = [f"answer to {word}" for word in WORDS]
GRADES = [str(number % 6) for number in range(300)]


@pytest.mark.parametrize(
    ("header", "columns", "separator", "methods"),
    [
        ("frage;antwort", (WORDS, ANSWERS), ";", {"mnr"}),
        ("query,pos,neg", (WORDS, ANSWERS, ["no such thing"] * 300), ",", {"mnr"}),
        ("A\tB\trating", (WORDS, ANSWERS, GRADES), "\t", {"cosent", "angle"}),
        ("id,title,body", (GRADES, WORDS, ANSWERS), ",", {"mnr"}),
    ],
)
def test_a_file_becomes_a_space_that_can_be_planned(
    header: str, columns: tuple[list[str], ...], separator: str, methods: set[str]
) -> None:
    write("mine.csv", header, *columns, separator=separator)
    done = invoke(*INIT)
    assert (done.code, done.err) == (0, "")
    assert "30 examples for dev and 30 for test are held out" in done.out
    assert "the 240 examples that remain for training" in done.out
    command = done.out.splitlines()[-1].split()
    assert command[:3] == ["tune-sentcl", "search", "mine.toml"]
    space = load_space("mine.toml")
    assert {config.method.name for config in space.configurations} == {"none", *methods}
    assert all(config.optimizer.max_grad_norm == 1.0 for config in space.configurations)
    assert invoke("plan", *command[2:]).code == 0
    again = invoke(*INIT)
    refused(again, "mine.toml", "must be a new file")


@pytest.mark.parametrize(
    ("number", "header", "mines"),
    [
        (1_300, "anchor,positive", True),
        (1_200, "anchor,positive", False),  # 960 are left to train on
        (1_300, "anchor,positive,negative", False),
    ],
)
def test_only_many_pairs_get_mined_negatives(number: int, header: str, mines: bool) -> None:
    texts = [[f"{role} {i}" for i in range(number)] for role in header.split(",")]
    write("mine.csv", header, *texts)
    done = invoke(*INIT)
    assert (done.code, "which toy mines" in done.out) == (0, mines)
    space = load_space("mine.toml")
    assert ({"data.mined", "data.mined_margin"} <= {one.key for one in space.ranges}) == mines
    assert {config.data.mined for config in space.configurations} == {0}
    found = invoke("plan", "mine.toml", "--samples", "1", "--json")
    assert found.code == 0


def test_rows_that_do_not_match_stand_neither_in_training_nor_in_evaluation() -> None:
    marks = [str(int(number % 3 > 0)) for number in range(300)]
    write("mine.csv", "qid,question1,question2,is_duplicate", GRADES, WORDS, ANSWERS, marks)
    done = invoke(*INIT)
    assert done.code == 0
    assert "200 rows, read as pairs, columns anchor=question1, positive=question2" in done.out
    assert "rows with is_duplicate = 1 are read as positives: 200 of 300" in done.out
    assert "these columns are not read: qid" in done.out
    texts = Path("mine/held-out/queries.jsonl").read_text("utf-8")
    trained = pq.read_table("mine/train.parquet")["anchor"].to_pylist()
    wrong = {f"text number {number}" for number in range(0, 300, 3)}
    assert not wrong & {*trained} and not any(f'"{word}"' in texts for word in wrong)


def test_a_column_split_decides_what_is_held_out() -> None:
    splits = [("train", "dev", "test", "train", "train")[number % 5] for number in range(300)]
    write("mine.csv", "split,anchor,positive", splits, WORDS, ANSWERS)
    done = invoke(*INIT)
    assert "60 examples for dev and 60 for test are held out" in done.out
    assert "the 180 examples that remain for training" in done.out
    assert "(the column split gives dev and test)" in done.out


@pytest.mark.parametrize(
    ("header", "is_one"),
    [
        ("where is the river?,the river is there", False),
        ("how do I open it,you turn the key twice", False),
        ("question 7,3", False),
        ("Frage,Antwort", True),
        ("what people ask for,answer", True),
        ("text of mine,answer", True),
        ("0,1", True),  # pandas numbers columns without names
    ],
)
def test_a_first_line_that_looks_like_a_row_is_no_header(header: str, is_one: bool) -> None:
    write("mine.csv", header, WORDS, ANSWERS)
    done = invoke(*INIT)
    if is_one:
        assert done.code == 0
    else:
        refused(done, "mine.csv line 1", "must name the columns", "--columns")


def test_what_is_wrong_with_rows_is_told() -> None:
    anchors = [*WORDS, "", "text number 3"]
    answers = [*ANSWERS, "no question", "text number 3"]
    answers[0] = "word " * 600
    write("mine.csv", "anchor,positive", anchors, answers)
    done = invoke(*INIT)
    for words in (
        "rows with a blank text are left out: 1",
        "rows with a positive equal to the anchor: 1 (the first: 'text number 3')",
        "texts that toy cuts off after 64 tokens: 1 of ",
    ):
        assert words in done.out


def test_a_task_of_your_own_is_taken_and_must_not_be_trained_on() -> None:
    write("mine.csv", "anchor,positive", WORDS, ANSWERS)
    write("dev.csv", "sentence1,sentence2,score", WORDS[:30], ANSWERS[:30], GRADES[:30])
    done = invoke(
        *["init", "mine.toml", "--rows", "mine.csv", "--dev", "dev.csv", "--encoder", "toy"]
    )
    assert done.code == 0
    # A file that is named after its split gives the task no name, and its folder does.
    assert "place dev contains 30 of the training rows" in done.out
    assert "a search refuses these rows" in done.out
    refused(invoke("plan", "mine.toml"), "place dev contains 30", "--allow-overlap")
    Path("mine.toml").unlink()
    write("my grades.csv", "sentence1,sentence2,score", WORDS[:30], WORDS[30:60], GRADES[:30])
    done = invoke(
        *["init", "mine.toml", "--rows", "mine.csv", "--dev", "my grades.csv", "--encoder", "toy"]
    )
    assert done.code == 0 and "--objective my-grades:spearman:dev" in done.out
    assert not Path("mine").exists()


@pytest.mark.parametrize(
    ("header", "labels", "dev", "method"),
    [
        ("premise,hypothesis,label", GRADES, "sentence1,sentence2,score", "scl"),
        ("text,note,source", WORDS, "sentence1,sentence2,score", "simcse"),
        ("anchor,positive,source", WORDS, "text,note,label", "mnr"),
    ],
)
def test_rows_with_a_task_of_any_kind_become_a_space_too(
    header: str, labels: list[str], dev: str, method: str
) -> None:
    # Finds an order of labeled pairs that the untrained encoder, which reads no rows, refuses, and
    # points of a training at which a classifier cannot be scored.
    labels = [label.translate(str.maketrans("345", "012")) for label in labels]
    write("mine.csv", header, WORDS, ANSWERS, labels)
    asked = [f"scored {word}" for word in WORDS[:60]]
    write("own.csv", dev, asked, asked[::-1], [str(number % 3) for number in range(60)])
    done = invoke(*INIT, "--dev", "own.csv")
    assert (done.code, done.err) == (0, "")
    assert [c.method.name for c in load_space("mine.toml").configurations] == ["none", method]
    assert "cannot be estimated" not in done.out
    for command in done.out.splitlines()[-3::2]:
        assert invoke("plan", *command.split()[2:]).code == 0


@pytest.mark.parametrize("has_dev", [False, True])
def test_useless_rows_are_counted_and_clean_trains_without_them(*, has_dev: bool) -> None:
    # Finds rows that are dropped in a copy, while the space names the file.
    dev = ("--dev", "dev.csv") if has_dev else ()
    write("dev.csv", "sentence1,sentence2,score", WORDS[:30], ANSWERS[:30], GRADES[:30])
    texts = [*WORDS, "  TEXT number 40", "text number 41", "alike", "как оплатить"]
    others = [*ANSWERS, "Answer to text number 40 ", "text NUMBER 41", " Alike", "картой"]
    write("mine.csv", "anchor,positive", texts, others)
    found = [
        "rows that repeat an earlier row: 1 (the first: '  TEXT number 40')",
        "rows with a positive equal to the anchor: 2 (the first: 'text number 41')",
    ]
    if has_dev:
        found.append("contains 30 of the training rows (such as 'text number 0')")
    told = invoke(*INIT, *dev).out
    assert "Cyrillic in 2 texts: mine.csv line 305 (one of them: 'как оплатить')" in told
    assert all(line in told for line in found) and told.count("--clean drops") == len(found)
    again = invoke("init", "clean.toml", *INIT[2:], *dev, "--clean")
    assert (again.code, again.err) == (0, "")
    assert all(line in again.out for line in found)
    assert again.out.count("these rows are dropped") == len(found) and "--clean" not in again.out
    (source,) = {config.data.source for config in load_space("clean.toml").configurations}
    trained = pq.read_table(source).to_pydict()
    assert len(trained["anchor"]) == (271 if has_dev else 241)
    assert f"the {len(trained['anchor'])} examples that remain for training" in again.out
    assert {*trained["anchor"]} <= {*WORDS, "как оплатить"}
    # The first rows of a sorted file do not stand for all.
    assert trained["anchor"] != sorted(trained["anchor"], key=[*WORDS, "как оплатить"].index)
    assert invoke("plan", "clean.toml").code == 0


@pytest.mark.parametrize(
    ("minutes", "seconds_a_row", "sizes"),
    [
        (10, 0.0393, ["--set", "data.limit=600", "--budget", "4"]),
        (1, 10.0, ["--set", "data.limit=510", "--budget", "4"]),  # the least rows
        (4, 0.003, ["--budget", "10"]),
        (2, 0.003, ["--budget", "8"]),
    ],
)
def test_a_first_look_has_fewer_rows_and_then_fewer_configurations(
    minutes: int, seconds_a_row: float, sizes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_measure", lambda *_: (0.0, seconds_a_row, 0.0, None))
    monkeypatch.setattr(plan, "trials_at_a_time", lambda *_: 1)
    words = [f"text number {number}" for number in range(1000)]
    write("mine.csv", "anchor,positive", words, [f"answer to {word}" for word in words])
    done = invoke(*INIT, "--minutes", minutes)
    *_, first, look, second, whole = done.out.splitlines()
    search = ["tune-sentcl", "search", "mine.toml", "--objective", "held-out:ndcg@10:dev"]
    end = ["--seeds", "0", "--study", "studies/mine-first-look"]
    assert look.split() == [*search, *sizes, *end]
    seeds = ["--budget", "20", "--confirm", str(CONFIRMATION_SEEDS)]
    assert whole.split() == [*search, *seeds, "--study", "studies/mine"]
    rows = int(sizes[1].partition("=")[2]) if "--set" in sizes else 800
    assert (f"on the first {rows} of 800 rows" in first) == (rows < 800)
    # All epochs of the grid's training and of the budget, and the start of Ray.
    expected = 5 * rows * seconds_a_row * (1 + int(sizes[-1])) + 10
    assert _minutes(first) == pytest.approx(expected / 60, rel=0.05, abs=0.6)
    trainings = 3 + 20 + 2 * CONFIRMATION_SEEDS
    expected = 5 * 800 * seconds_a_row * trainings + 20
    assert _minutes(second) == pytest.approx(expected / 60, rel=0.1, abs=0.6)


def _minutes(sentence: str) -> float:
    number, unit = sentence.partition(", about ")[2].split()[:2]
    return float(number) * (60 if unit == "hours" else 1)


def test_a_static_encoder_gets_its_own_rates() -> None:
    write("mine.csv", "query,pos", WORDS, ANSWERS)
    done = invoke(*INIT[:-1], "static:8:toy")
    assert done.code == 0
    space = load_space("mine.toml")
    assert {config.optimizer.lr for config in space.configurations} == {0.2}
    planned = invoke("plan", *done.out.splitlines()[-1].split()[2:])
    assert planned.code == 0 and "unusual" not in planned.out + planned.err


def test_names_with_marks_stay_texts() -> None:
    """A file's name must not end the string of a TOML file, which could name plugins."""
    name = 'z"\nplugins = ["evil.py"]\nsummary = "\' .csv'
    write(name, "anchor,positive", WORDS, ANSWERS)
    done = invoke("init", "my space.toml", "--rows", name, "--encoder", "toy")
    assert done.code == 0 and "tune-sentcl search 'my space.toml' " in done.out
    assert load_space("my space.toml").plugins == ()


@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        ("a.csv", "id,note\n1,x\n", ["the columns are id, note", "--columns"]),
        ("a.txt", "a sentence\nanother one\n", ["need an evaluation task", "--dev"]),
        ("a.csv", "anchor,positive\na,b\n", ["20 rows or more", "--dev"]),
        ("a.docx", "x", ["must end in"]),
    ],
)
def test_rows_that_cannot_be_used(name: str, lines: str, words: list[str]) -> None:
    Path(name).write_text(lines)
    refused(invoke("init", "mine.toml", "--rows", name, "--encoder", "toy"), *words)
    assert not Path("mine.toml").exists()


def test_a_folder_in_which_no_file_can_be_written_is_named() -> None:
    write("mine.csv", "anchor,positive", WORDS, ANSWERS)
    refused(invoke("init", "mine.csv/mine.toml", *INIT[2:]), "OUT: mine.csv/mine.toml", "written")


def test_knobs_are_listed_with_defaults_and_ranges() -> None:
    table = {row["knob"]: row for row in rows("knobs", "mnr")}
    assert table["method.temperature"]["default"] in ("0.05", 0.05)
    assert table["method.temperature"]["space"] == "gist"
    assert not any(key.startswith(("optimizer.", "method.guide")) for key in table)
    assert {row["knob"] for row in rows("knobs")} == set(knobs())
    page = (Path(__file__).parents[2] / "docs" / "knobs.md").read_text(encoding="utf-8")
    assert page.endswith(invoke("knobs", "--markdown").out)
    margin = next(row for row in rows("knobs", "triplet") if row["knob"] == "method.margin")
    assert margin["meaning"].startswith("how much further away a negative must be")
    refused(invoke("knobs", "mnrr"), "METHOD", "mnrr", "must be one of")


@pytest.mark.long
def test_two_encoders_are_compared_on_the_same_items(held: Path) -> None:
    """A study stands for its winner; equal models do not differ."""
    scores = rows("evaluate", "toy", "--toy")
    whole = [s for s in scores if s["metric"] == "spearman" and not s["subset"]]
    whole = [s for s in whole if s["aggregation"] in (None, "all")]
    alone = {(score["task"], score["split"]): score["value"] for score in whole}
    table = rows("evaluate", held, "toy", "--toy")
    assert {row["task"] for row in table} >= {"STS-B", "STS12", "SICK-R"}
    for row in table:
        assert row["A - B"] == pytest.approx(row["A"] - row["B"])
        assert row["low"] <= row["A - B"] <= row["high"]
        assert row["B"] == pytest.approx(alone[row["task"], row["split"]])
    assert any(row["low"] < row["high"] for row in table)
    same = rows("evaluate", "toy", "toy", "--toy")
    assert {(row["A - B"], row["low"], row["high"]) for row in same} == {(0, 0, 0)}
    classes = rows("evaluate", "toy", "toy", "--toy", "--suite", "transfer")
    assert {row["task"] for row in classes} >= {"MR", "TREC"}
    assert {(row["A - B"], row["low"]) for row in classes if row["task"] == "MR"} == {(0, None)}
    refused(
        invoke("evaluate", "toy", "toy", "toy", "--toy"),
        "MODEL",
        "one or two models must be named",
    )
