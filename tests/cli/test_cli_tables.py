"""What people see of tables: at the widths of terminals, and in a pipe."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_samples import (
    TOY,
    command,
    environment,
    in_terminal,
    invoke,
    refused,
    rows,
    tables,
    trials,
)
from disk_samples import write
from rich.cells import cell_len

from tune_sentcl.cli.terminal_tables import Layout, cell, table_lines

pytest_plugins = ["cli_fixtures"]

WIDTHS = [80, None]  # None: a pipe
SMALL = ("--seeds", "0,1", "--set", "evaluation.every=0", "--set", "data.limit=32")


@pytest.fixture(scope="module")
def closing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A study of two configurations by two seeds, and what its search printed at 80 columns."""
    study = tmp_path_factory.mktemp("closing") / "study"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.delenv("RAY_ADDRESS", raising=False)
        done = invoke("search", "smoke", "--study", study, *SMALL, "--max-concurrent", "1")
    assert done.code == 0, done.err
    return study, done.out


@pytest.fixture
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    monkeypatch.delenv("COLUMNS", raising=False)
    columns: int | None = request.param
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    return columns


def read(text: str, width: int | None, titles: Sequence[str]) -> list[list[dict[str, str]]]:
    """The tables of an output that keeps the laws: whole titles, no codes, no line too long.

    Sentences below the last table are the terminal's to wrap.
    """
    assert "\x1b" not in text
    lines = text.splitlines()
    found = tables(text)
    last = max(number for number, line in enumerate(lines) if line.startswith("─"))
    if width:
        assert max(map(cell_len, lines[: last + len(found[-1]) + 1])) <= width, text
    assert set(titles) <= set(found[0][0]), text
    return found


@pytest.mark.parametrize("width", WIDTHS, indirect=True)
def test_show_keeps_ids_and_numbers_whole(closing: tuple[Path, str], width: int | None) -> None:
    study, printed = closing
    stored = rows("show", study)
    out = invoke("show", study).out
    trials, over_seeds = read(out, width, ["trial", "seed", "dev", "STS"])
    kept = {(row["trial_id"][:8], f"{row['objective']:.2f}") for row in stored}
    assert {(row["trial"], row["dev"]) for row in trials} == kept and len(kept) == 4
    a, b = {row["configuration"] for row in stored}
    assert {row["configuration"] for row in over_seeds} == {a[:8], b[:8]}
    for row in over_seeds:
        mean, sign, sd = row["dev"].split()
        assert (float(mean) > 0, sign, float(sd) >= 0) == (True, "±", True)
    if width == 80:
        assert out in printed, "a search ends with what show prints"
    # Programs are given whole ids at any width.
    assert {len(row["trial_id"]) for row in stored} == {16}
    csv = invoke("show", study, "--csv").out
    assert all(row["trial_id"] in csv for row in stored)
    (judged,) = json.loads(invoke("judge", study, a[:8], b[:8], "--json").out)
    assert (judged["a"], judged["b"]) == (a, b)
    refused(invoke("judge", study, "f00f00f0", b[:8]), "f00f00f0")


@pytest.mark.parametrize("width", WIDTHS, indirect=True)
@pytest.mark.parametrize(
    ("words", "titles"),
    [
        ("plan smoke --seeds 0,1", ["trial", "seed"]),
        ("evaluate toy --toy", ["task", "value"]),
        ("spaces", ["name", "trials", "what"]),
        ("spaces scl/table2_3", ["method.name", "method.lambda"]),
        ("data check ROOT", ["name", "status"]),
    ],
)
def test_no_table_is_wider_than_the_terminal(
    words: str, titles: list[str], width: int | None, place: Path, sts_root: Path
) -> None:
    given = [sts_root if word == "ROOT" else word for word in words.split()]
    read(invoke(*given).out, width, titles)


MIXED = """
[fixed]
encoder.checkpoint = "toy"
data.source = "toy"
data.limit = 34
data.drop_last = true
optimizer.batch_size = 16
[[block]]
fixed.method.name = "mnr"
grid.method.dims = [[16, 8], [16]]
[search.ranges]
method.name = { choices = ["scl"] }
method.num_positives = { choices = [1, "all"] }
"""


def test_lists_and_choices_of_several_types_are_searched_shown_and_judged(place: Path) -> None:
    write(place / "mixed.toml", MIXED)
    done = invoke("search", "mixed.toml", "--samples", "2", "--scheduler", "none", "--study", "s")
    assert done.code == 0, done.err
    assert "= 16, the first epoch leaves out 2 of the 34 rows of toy" in done.err
    shown = {(row["num_positives"], row["dims"]) for row in tables(invoke("show", "s").out)[0]}
    assert shown == {("", "16, 8"), ("", "16"), ("1", ""), ("all", "")}
    stored = trials("s")
    assert {(row["method.num_positives"], str(row["method.dims"])) for row in stored} == {
        *(("1", "None"), ("all", "None")),
        *((None, "[16, 8]"), (None, "[16]")),
    }
    assert {row["notes"] for row in stored} == {"the first epoch leaves out 2 of the 34 rows"}
    (judged,) = json.loads(invoke("judge", "s", "dims=[16,8]", "num_positives=1", "--json").out)
    ids = {str(row["method.dims"]): row["trial_id"] for row in stored}
    assert judged["a"] == ids["[16, 8]"]
    assert invoke("report", "s").code == 0 and "16, 8" in Path("report.html").read_text()
    write(place / "lists.toml", MIXED.replace('[1, "all"]', "[[1], [2]]"))
    refused(invoke("plan", "lists.toml"), "must not be lists or tables", "the grid of a [[block]]")


def test_a_terminal_says_how_wide_it_is(closing: tuple[Path, str]) -> None:
    study, _ = closing
    variables = {k: v for k, v in environment(TERM="xterm").items() if k != "COLUMNS"}
    code, written = in_terminal(command("show", study), variables, columns=72)
    assert code == 0
    plain = written.replace("\r", "")
    assert "\x1b[1m" in plain  # titles are bold there
    for style in ("\x1b[1m", "\x1b[0m"):
        plain = plain.replace(style, "")
    assert len(read(plain, 72, ["trial", "dev"])[0]) == 4


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"trial": f"abcdefabcd{number:06x}", **more}


def table(rows: list[dict[str, Any]], width: int, **layout: Any) -> list[dict[str, str]]:
    """The rows of a table that fits its width."""
    lines = table_lines(rows, width, layout=Layout(**layout))
    assert max(map(cell_len, lines)) <= width
    (cells,) = tables("\n".join(lines))
    return cells


@pytest.mark.parametrize(
    ("numbers", "length"), [((0x100000, 0x200000), 11), ((0x100000, 0x200000, 0x200001), 16)]
)
def test_ids_are_as_long_as_it_takes_to_tell_them_apart(
    numbers: tuple[int, ...], length: int
) -> None:
    given = [row(number) for number in numbers]
    cut = [one["trial"][:length] for one in given]
    assert [one["trial"] for one in table(given, 80)] == cut


def test_what_does_not_vary_is_said_once_and_what_has_no_room_is_named() -> None:
    numbers = {f"knob_{number}": number + 0.123456 for number in range(12)}
    same = {"method": "scl", "subset": None}
    rows = [row(number << 20, **same, **numbers, dev=80.0 + number) for number in range(3)]
    dropped = [f"knob_{n}" for n in range(11, -1, -1)]
    layout = Layout(constant=["method", "subset"], of="trials", drop_first=dropped)
    lines = table_lines(rows, 60, layout=layout)
    assert lines[0] == "all 3 trials have method scl"
    assert max(map(len, lines)) <= 60 and not any("subset" in line for line in lines)
    (found,) = tables("\n".join(lines))
    assert [cells["dev"] for cells in found] == ["80.00", "81.00", "82.00"]
    (start,) = (n for n, line in enumerate(lines) if "left out at width 60" in line)
    told = " ".join(lines[start:]).replace(",", "").replace(";", "").split()
    assert {key for key in numbers if key not in found[0]} == {*numbers} & {*told}
    assert "knob_0" in found[0] and "knob_11" in told


def test_texts_wrap_at_words_long_words_anywhere_and_numbers_never() -> None:
    texts = [
        "a repair that is told in many words " * 3,
        "models/of_one_long_experiment/" + "x" * 60,
    ]
    rows = [row(n << 20, rows=123_456_789, repair=text) for n, text in enumerate(texts)]
    cells = table(rows, 50)
    assert [one["rows"] for one in cells if one["rows"]] == ["123456789"] * 2
    second = next(place for place, one in enumerate(cells) if place and one["rows"])
    assert " ".join(one["repair"] for one in cells[:second]).split() == texts[0].split()
    assert "".join(one["repair"] for one in cells[second:]) == texts[1]


def test_texts_give_way_before_ids_and_numbers_do() -> None:
    # Rich narrows the widest of the columns that may wrap, and cuts what it has narrowed too far.
    given = [row(n << 20, a="45.11 ± 0.68", verdict="not proven", path="x" * 30) for n in (1, 2)]
    for width in range(50, 66):
        for one in table(given, width)[:1]:
            assert (one["trial"], one["a"]) == ("abcdefab" + "cd1", "45.11 ± 0.68")
            assert one["verdict"] == "not proven"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (-0.05, "-0.05"), (0.1, "0.10"), (0.01234, "0.0123"), (float("nan"), "")],
)
def test_small_numbers_keep_three_digits(value: float, text: str) -> None:
    assert cell(value) == text


def test_long_names_of_objectives_and_averages_without_a_value_take_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, name = tmp_path / "study", "a_long_name_of_a_task_of_our_own"
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("sentence1,sentence2,score\na dog,a cat,1\na man,a man runs,4\na,b,2\n")
    own = f'["{name}={pairs}", "b={pairs}"]'
    settings = ("--set", "evaluation.suites=[]", "--set", f"evaluation.own={own}")
    assert invoke("train", *TOY, *settings, "--study", study).code == 0
    monkeypatch.setenv("COLUMNS", "80")
    asked = ("--objective", f"{name}:spearman:dev", "--objective", "b:spearman:dev")
    out = invoke("show", study, *asked).out
    ((shown,),) = read(out, 80, ["a_long_name_of_a_ta…", "b"])
    assert out.startswith(f"a_long_name_of_a_ta…: {asked[1]},") and "STS" not in out
    assert float(shown["b"]) == float(shown["a_long_name_of_a_ta…"])
