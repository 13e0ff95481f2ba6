"""The command `judge`: whether one configuration scores higher than another."""

from typing import Annotated, Any

import typer

from tune_sentcl.cli.exits import FAILED, say
from tune_sentcl.cli.options import SCORE, JsonOption, parse_value
from tune_sentcl.cli.terminal_tables import line, print_json, print_table
from tune_sentcl.errors import ConfigError, Fault

MORE_SEEDS = 3

_NAME = "The id of a configuration or trial, or its first digits, or KNOB=VALUE,KNOB=VALUE."
_SHOWN = ("asked", "verdict", "more_seeds", "difference", "sd", "n", "p_corrected")


def judge(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    a: Annotated[
        str | None, typer.Argument(help=f"The configuration that should score higher. {_NAME}")
    ] = None,
    b: Annotated[
        str | None, typer.Argument(help="The configuration to compare with, in the same form.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The baseline, in the same form. Default: the configuration with "
            "method.name=none, else with method.lambda=0, else the space's first grid point.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar=SCORE,
            help="The score to compare. Default: the first objective of the last search.",
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Probability of at least one false claim among all comparisons.")
    ] = 0.05,
    most_seeds: Annotated[
        int,
        typer.Option(help="If more seeds than this are needed, the verdict is not established."),
    ] = 100,
    json_rows: JsonOption = False,
) -> None:
    """Say whether A scores higher than B.

    The exit code is 0 if so, 1 if that is not established, and 3 if it takes more seeds. Without A
    and B the winner of the search is compared with the baseline and the runner-up.
    """
    from tune_sentcl.judging.comparing import ComparisonRules
    from tune_sentcl.judging.judgement import judge as judge_two
    from tune_sentcl.judging.judgement import judge_winner
    from tune_sentcl.objective import parse_objectives
    from tune_sentcl.store.reading.study import Study

    _check(a, b, baseline, alpha, most_seeds)
    chosen = parse_objectives([objective], allow_test=True)[0] if objective else None
    rules = ComparisonRules(alpha, most_seeds)
    kept = Study.read(study)
    if a is not None and b is not None:
        found = [judge_two(kept, _named(a), _named(b), chosen, rules)]
    else:
        plain = None if baseline is None else _named(baseline)
        found = judge_winner(kept, plain, chosen, rules)
    rows = [one.row() for one in found]
    if json_rows:
        print_json(rows)
    else:
        print_table([{name: row[name] for name in _SHOWN} for row in rows])
        for row in rows:
            verdict = row["verdict"].replace("MORE", f"{row['more_seeds']} MORE")
            line(f"{verdict}: {row['sentence']}")
    for note in dict.fromkeys(note for one in found for note in one.notes):
        say(f"note: {note}")
    verdicts = {one.verdict for one in found}
    if verdicts != {"ESTABLISHED"}:
        raise typer.Exit(FAILED if "NOT ESTABLISHED" in verdicts else MORE_SEEDS)


def _check(
    a: str | None, b: str | None, baseline: str | None, alpha: float, most_seeds: int
) -> None:
    faults = []
    if a is not None and b is None:
        faults.append(Fault("judge", "", a, "must be compared with another", "Name B too."))
    if a is not None and baseline is not None:
        rule = "cannot be combined with A and B"
        faults.append(Fault("--baseline", "", baseline, rule, "Drop it."))
    if not 0 < alpha < 1:
        rule = "must lie between 0 and 1"
        faults.append(Fault("--alpha", "", f"{alpha:g}", rule, "Write --alpha 0.05."))
    if most_seeds < 3:
        faults.append(Fault("--most-seeds", "", str(most_seeds), "must be 3 or more", "Raise it."))
    if faults:
        raise ConfigError(faults)


def _named(text: str) -> str | dict[str, Any]:
    """Parse KNOB=VALUE pairs; any other text is an id."""
    if "=" not in text:
        return text
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(key.strip() and sign and value.strip() for key, sign, value in pairs):
        rule = "must be KNOB=VALUE,KNOB=VALUE"
        raise ConfigError(Fault("judge", "", text, rule, "Write method=scl,lambda=0.3."))
    return {key.strip(): parse_value(value.strip()) for key, _, value in pairs}
