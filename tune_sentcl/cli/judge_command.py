"""The command `judge`: whether one configuration scores higher than another."""

import math
import re
from typing import Annotated, Any

import typer

from tune_sentcl.cli.exits import FAILED, say
from tune_sentcl.cli.options import JsonOption, parse_value
from tune_sentcl.cli.terminal_tables import line, print_json, print_table, wrapped
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.tuning.options import SCORE

UNDECIDED = 3

_NAME = (
    "A name is the start of a configuration's or trial's id, a method such as untrained, or "
    "values such as lambda=0.3,batch_size=32."
)
_SHOWN = ("asked", "verdict", "difference", "low", "high", "p", "n", "procedure")


def judge(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    a: Annotated[
        str | None, typer.Argument(help=f"Configuration that should score higher. {_NAME}")
    ] = None,
    b: Annotated[
        str | None, typer.Argument(help="Configuration to compare A with, named in the same way.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Baseline, named like A. Default: the best configuration with method.name=none; "
            "else the best with method.lambda=0; else the first grid point.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar=SCORE,
            help="Score to compare. Default: the first objective of the last search.",
        ),
    ] = None,
    alpha: Annotated[
        float,
        typer.Option(
            help="Probability of a false claim among the comparisons of the search seeds, and "
            "among those of the first confirmation."
        ),
    ] = 0.04,
    smallest: Annotated[
        float,
        typer.Option(
            metavar="POINTS", help="Largest difference in points that counts as NO DIFFERENCE."
        ),
    ] = 0.005,
    expect_equal: Annotated[
        bool,
        typer.Option(
            "--expect-equal",
            help="Exit with 0 if the verdict is NO DIFFERENCE; with 3 if it is UNDECIDED, "
            "else with 1.",
        ),
    ] = False,
    json_rows: JsonOption = False,
) -> None:
    """Say whether A scores higher than B.

    Without A and B, it compares the winner with the baseline and the runner-up; with --baseline,
    only with that configuration. The first verdict determines the exit code: 0 if A scores higher,
    1 if not, 3 if that is undecided.
    """
    from tune_sentcl.results.judgement import judge as judge_study
    from tune_sentcl.results.standings import asked_objectives
    from tune_sentcl.store.study import Study

    _check(a, b, baseline, alpha, smallest)
    names = [_named(text) for text in (a, b) if text is not None]
    tables = Study.read(study)
    judgements = judge_study(
        tables,
        *names,
        baseline=None if baseline is None else _named(baseline),
        objective=asked_objectives(tables, [objective])[0] if objective else None,
        alpha=alpha,
        smallest=smallest,
    )
    rows = [judgement.row() for judgement in judgements]
    if json_rows:
        print_json(rows)
    else:
        for row in rows:
            wrapped(f"{row['verdict']}: {row['sentence']}")
        for step in filter(None, dict.fromkeys(row["next_step"] for row in rows)):
            line(f"  next: {step}")
        if len(rows) > 1:
            print_table([{name: row[name] for name in _SHOWN} for row in rows])
    for note in dict.fromkeys(note for row in rows for note in row["notes"]):
        say(f"note: {note}")
    wanted = "NO DIFFERENCE" if expect_equal else "ESTABLISHED"
    verdict = judgements[0].verdict
    raise typer.Exit(UNDECIDED if verdict == "UNDECIDED" else FAILED * (verdict != wanted))


def _check(
    a: str | None, b: str | None, baseline: str | None, alpha: float, smallest: float
) -> None:
    faults = []
    if a is not None and b is None:
        faults.append(
            Fault(
                "judge",
                value=a,
                rule="configuration A needs a second configuration, B, to be compared with",
                move="Name B after A.",
            )
        )
    if a is not None and baseline is not None:
        rule = "cannot be combined with A and B"
        faults.append(Fault("--baseline", value=baseline, rule=rule, move="Remove --baseline."))
    if not 0 < alpha < 1:
        rule = "must lie between 0 and 1"
        faults.append(Fault("--alpha", value=f"{alpha:g}", rule=rule, move="Write --alpha 0.04."))
    if not 0 <= smallest < math.inf:
        rule = "must be a number of points, 0 or more"
        faults.append(
            Fault("--smallest", value=f"{smallest:g}", rule=rule, move="Write --smallest 0.1.")
        )
    if faults:
        raise ConfigError(faults)


def _named(text: str) -> str | dict[str, Any]:
    """Parse a configuration's name as tables and sentences print it.

    The name is an id, a method, or KNOB=VALUE pairs; a word without "=" is the method. If the name
    ends with an id in parentheses, the id alone counts.
    """
    text = text.strip()
    if title := re.fullmatch(r".*\((\w{8})(, older code)?\)", text):
        return title[1]
    if "=" not in text:
        return text
    outside_lists = re.split(r",(?![^\[]*\])", text)
    pairs = [(part if "=" in part else f"method={part}").partition("=") for part in outside_lists]
    if not all(key.strip() and value.strip() for key, _, value in pairs):
        rule = "must be KNOB=VALUE,KNOB=VALUE"
        raise ConfigError(
            Fault("judge", value=text, rule=rule, move="Write method=scl,lambda=0.3.")
        )
    return {key.strip(): parse_value(value.strip()) for key, _, value in pairs}
