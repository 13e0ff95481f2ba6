"""The words of a verdict: its sentence, its remarks and the next command."""

import re
from collections.abc import Iterator, Sequence

from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import Comparison
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.evidence import Evidence, Source
from tune_sentcl.judging.statistics import mean, sd

_LEAST_P = 1e-4
_ENDS = {"failed": "failed", "pruned": "stopped at the end of a stage"}


def sentence(
    evidence: Evidence,
    pair: tuple[Configuration, Configuration],
    answer: Comparison | str,
    needed: int | None,
) -> str:
    """State the result with its procedure, as a paper would.

    Args:
        evidence: That of the study.
        pair: The two configurations.
        answer: What the evidence says of them.
        needed: The number of fresh seeds to propose.
    """
    a, b = map(evidence.configurations.title, pair)
    objective, source = evidence.configurations.objective, evidence.source(*pair)
    undecided = f"Whether {a} scores higher than {b} on {objective} is undecided"
    if isinstance(answer, str):
        if source == "planned":
            option = f": --confirm {needed}" if needed else ""
            answer = f"{answer}; only fresh seeds can support a claim{option}"
        return f"{undecided}: {answer}."
    basis = _basis(answer, source)
    if answer.verdict == "NO DIFFERENCE":
        most = f"{evidence.smallest:g} points"
        return f"{a} and {b} differ by at most {most} on {objective} ({basis})."
    higher, lower = (a, b) if answer.difference > 0 else (b, a)
    if answer.verdict != "UNDECIDED":
        points = f"{_points(abs(answer.difference))} points"
        return f"{higher} scores {points} higher than {lower} on {objective} ({basis})."
    return f"{undecided} (difference {answer.difference:+.2f}, {basis})."


def _basis(comparison: Comparison, source: Source | None) -> str:
    """The interval of the higher one minus the lower one, p-value and procedure."""
    if comparison.procedure == "exact":
        return "no seed changes either score"
    sign = -1 if comparison.verdict == "REVERSED" else 1
    low, high = sorted((sign * comparison.low, sign * comparison.high))
    count = f"{comparison.configurations} configurations"
    procedure = {
        "Dunnett": f"Dunnett's test, {count}",
        "Tukey": f"Tukey's test, all pairs of {count}",
        "Bonferroni t": f"t-test of unequal spreads, Bonferroni over {count}",
    }[comparison.procedure]
    p = f"p = {comparison.p:.2g}" if comparison.p >= _LEAST_P else f"p < {_LEAST_P:g}"
    return (
        f"{100 * comparison.level:.4g}% interval {_points(low)} to {_points(high)}, {p}; "
        f"{procedure}, {comparison.n} {'fresh ' if source == 'fresh' else ''}seeds as blocks"
    )


def _points(value: float) -> str:
    """A number of points; small ones get more digits, so that no end beyond 0 is printed as 0."""
    return f"{value:.2f}" if abs(value) >= 0.01 or not value else f"{value:.1g}"


def next_step(command: str, needed: int | None) -> str:
    """The last search with fresh seeds; empty if they do not decide."""
    if not needed:
        return ""
    if not command:
        return f"repeat the search with --confirm {needed}"
    command = re.sub(r"^\S*tune-sentcl", "tune-sentcl", command)
    return f"{re.sub(r' --confirm[ =]+[0-9]+', '', command)} --confirm {needed}"


def notes(evidence: Evidence, pair: Sequence[Configuration]) -> Iterator[str]:
    """Remarks on the seeds of two configurations."""
    for candidate in pair:
        title, scores = evidence.configurations.title(candidate), candidate.scores()
        if lost := candidate.lost():
            ends = {end: sorted(s for s, why in lost.items() if why == end) for end in _ENDS}
            text = "; ".join(f"{_listed(ends[end])} {_ENDS[end]}" for end in ends if ends[end])
            yield f"{title} lost {len(lost)} of {len({*lost, *scores})} seeds: {text}."
        if fallen := evidence.configurations.collapsed.get(candidate.name):
            count = f"{len(fallen)} of {len(scores)} seeds {'score' if fallen[1:] else 'scores'}"
            seeds = ", ".join(f"seed {seed}: {scores[seed]:.2f}" for seed in fallen)
            yield f"{title}: {count} far below the others ({seeds})."
        if candidate.constant_score() is not None:
            yield f"{title} scores the same with every seed and counts as one number."
        elif fresh := list(candidate.fresh_scores().values()):
            spread = f" +- {sd(fresh):.2f}" if len(fresh) > 1 else ""
            value = f"{mean(fresh):.2f}{spread}"
            yield f"{title} scores {value} on {len(fresh)} fresh seeds: quote this."
    yield from unequal_precisions(evidence.configurations, pair)


def unequal_precisions(
    configurations: Configurations, compared: Sequence[Configuration]
) -> Iterator[str]:
    """A remark on configurations whose seeds were not all trained in one precision."""
    used: dict[str, dict[str, list[int]]] = {}
    for candidate in compared:
        own = used.setdefault(configurations.title(candidate), {})
        for seed in sorted(candidate.scores()):
            if (precision := candidate.results[seed].precision) is not None:
                own.setdefault(precision, []).append(seed)
    if len({precision for own in used.values() for precision in own}) > 1:
        texts = {
            title: ", ".join(f"{name} (seeds {_listed(seeds)})" for name, seeds in own.items())
            for title, own in used.items()
        }
        listed = "; ".join(f"{title}: {text}" for title, text in texts.items())
        rule = "Not all seeds were trained in one precision, which may be the difference"
        yield f"{rule}. {listed}."


def _listed(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))
