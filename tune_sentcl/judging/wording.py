"""The words of a verdict: its sentence, its remarks and the next command."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import Comparison, ComparisonRules
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.evidence import Evidence, Source
from tune_sentcl.judging.statistics import POWER, mean, sd

_RARE = 0.1  # the part of the seeds whose collapse a few seeds are likely to miss
_MISSED = 0.1  # the probability above which that is said
_LEAST_P = 1e-4
_NAMED = 3  # configurations whose collapsed seeds are told, beside those of a verdict


@dataclass(frozen=True)
class Seeds:
    """The seeds that decide an undecided verdict.

    Attributes:
        number: Of each configuration; None if no number is known.
        is_fresh: Whether they are fresh seeds.
        is_seen: Whether the number rests on a difference that was seen.
    """

    number: int | None
    is_fresh: bool
    is_seen: bool


def sentence(
    titles: tuple[str, str],
    objective: str,
    found: Comparison,
    source: Source | None,
    rules: ComparisonRules,
) -> str:
    """State the result with its procedure, as a paper would."""
    a, b = titles
    # Small numbers get more digits, so that no end that excludes 0 is printed as 0.
    sizes = map(abs, (found.difference, found.low, found.high))
    nearest = min((size for size in sizes if size), default=1.0)
    is_small = nearest < 0.01 and found.verdict != "UNDECIDED"
    digits = min(9, 1 - math.floor(math.log10(nearest))) if is_small else 2
    if found.procedure == "exact":
        basis = "no seed changes either score"
    else:
        sign = -1 if found.verdict == "REVERSED" else 1
        low, high = sorted((sign * found.low, sign * found.high))
        ends = f"{low:.{digits}f} to {high:.{digits}f}" if math.isfinite(high) else "unbounded"
        interval = f"{100 * found.level:.4g}% interval {ends}"
        p = f"p = {found.p:.2g}" if found.p >= _LEAST_P else f"p < {_LEAST_P:g}"
        basis = f"{interval}, {p}; {_procedure(found, source)}"
    points = f"{abs(found.difference):.{digits}f} points"
    if found.verdict in ("ESTABLISHED", "REVERSED"):
        higher, lower = (a, b) if found.verdict == "ESTABLISHED" else (b, a)
        return f"{higher} scores {points} higher than {lower} on {objective} ({basis})."
    if found.verdict == "NO DIFFERENCE":
        most = f"{rules.smallest:g} points"
        return f"{a} and {b} differ by at most {most} on {objective} ({basis})."
    seen = f"difference {found.difference:+.2f}, {basis}"
    if found.fallen:
        better, worse = (a, b) if found.difference > 0 else (b, a)
        seen = f"{seen}; a seed of {better} scores far below its others, none of {worse} does"
    return f"Whether {a} scores higher than {b} on {objective} is undecided ({seen})."


def _procedure(found: Comparison, source: Source | None) -> str:
    """The procedure in words that a paper can quote."""
    count = f"{found.configurations} configurations"
    n = f"{found.n:.4g} {'fresh seeds' if source == 'fresh' else 'seeds'} as blocks"
    pairs = f"all pairs of {count}"
    return {
        "Dunnett": f"Dunnett's test, {count}, {n}",
        "Tukey": f"Tukey's test, {pairs}, {n}",
        "Bonferroni t": f"t-test of unequal spreads, Bonferroni over {count}, {n}",
        "sequential t": f"sequential t-test valid after any seed, Bonferroni over {pairs}, {n}",
    }[found.procedure]


def next_step(command: str, seeds: Seeds) -> str:
    """The last search with fresh seeds; empty if they do not decide."""
    if not seeds.number or not seeds.is_fresh:
        return ""
    if not command:
        return f"repeat the search with --confirm {seeds.number}"
    command = re.sub(r"^\S*tune-sentcl", "tune-sentcl", command)
    return f"{re.sub(r' --confirm[ =]+[0-9]+', '', command)} --confirm {seeds.number}"


def notes(
    evidence: Evidence,
    pair: tuple[Configuration, Configuration],
    found: Comparison | None,
    needed: Seeds | None,
) -> Iterator[str]:
    """Remarks on a verdict; `needed` are the seeds that decide it, if seeds can."""
    if needed is not None:
        yield from _wanted(evidence, pair, needed)
    for one in pair:
        yield from _seeds(evidence, one)
    if len({precision for one in pair for precision in _precisions(one)}) > 1:
        both = "; ".join(
            f"{evidence.configurations.title(one)}: {_trained_in(one)}" for one in pair
        )
        yield f"Not all seeds were trained in one precision, which may be the difference. {both}."
    if found is not None and found.verdict == "ESTABLISHED" and found.procedure != "exact":
        missed = (1 - _RARE) ** found.n
        if missed > _MISSED and not evidence.collapsed:
            n = f"{found.n:.4g}"
            yield f"{n} seeds miss a collapse of a tenth of the seeds in {missed:.0%} of cases."


def _wanted(
    evidence: Evidence, pair: tuple[Configuration, Configuration], needed: Seeds
) -> Iterator[str]:
    kind = "fresh seeds" if needed.is_fresh else "seeds"
    if needed.number:
        size = "is as large as it seems" if needed.is_seen else "is 2 sds of a seed"
        verb = f"decide it with probability {POWER:g}, if the difference {size}"
        yield f"{needed.number} {kind} of each {verb}."
    elif any(one.constant_score() is None for one in pair):
        yield f"{evidence.rules.max_seeds} {kind} of each would probably not decide it."


def _seeds(evidence: Evidence, one: Configuration) -> Iterator[str]:
    title = evidence.configurations.title(one)
    if one.lost():
        count = len({*one.lost(), *one.scores()})
        yield f"{title} lost {len(one.lost())} of {count} seeds: {_lost(one)}."
    if one.name in evidence.collapsed:
        yield f"{_collapse(evidence, one)}."
    if one.constant_score() is not None:
        yield f"{title} scores the same with every seed and counts as one number."
    elif one.fresh_scores():
        yield f"{title} scores {_quoted(one)}."


def _collapse(evidence: Evidence, one: Configuration) -> str:
    fallen = evidence.collapsed[one.name]
    count = f"{len(fallen)} of {len(one.scores())} seeds {'score' if fallen[1:] else 'scores'}"
    seeds = ", ".join(f"seed {seed}: {one.scores()[seed]:.2f}" for seed in fallen)
    return f"{evidence.configurations.title(one)}: {count} far below the others ({seeds})"


def other_collapses(evidence: Evidence, known: set[str]) -> Iterator[str]:
    """Remarks on the collapsed seeds of the first configurations that no verdict is about."""
    others = [one for name, one in evidence.configurations.found.items() if name not in known]
    fallen = [one for one in others if one.name in evidence.collapsed]
    yield from _few(
        [f"{_collapse(evidence, one)}." for one in fallen], "score far below the others"
    )


def unequal_precisions(configurations: Configurations, known: set[str]) -> Iterator[str]:
    """Remarks on the configurations whose seeds were trained in several, but the known ones."""
    found = [one for name, one in configurations.found.items() if name not in known]
    mixed = [one for one in found if len(_precisions(one)) > 1]
    said = [f"{configurations.title(one)} was trained in {_trained_in(one)}." for one in mixed]
    yield from _few(said, "differ in precision")


def _few(said: list[str], what: str) -> Iterator[str]:
    """The remarks on the first configurations, and how many more there are."""
    yield from said[:_NAMED]
    if len(said) > _NAMED:
        yield f"Seeds of {len(said) - _NAMED} more configurations {what}."


def _precisions(one: Configuration) -> dict[str, list[int]]:
    """The seeds with a score by the precision that they were trained in, if a row says it."""
    found: dict[str, list[int]] = {}
    for seed in sorted(one.scores()):
        if (precision := one.results[seed].precision) is not None:
            found.setdefault(precision, []).append(seed)
    return found


def _trained_in(one: Configuration) -> str:
    precisions = _precisions(one).items()
    return ", ".join(f"{name} (seeds {','.join(map(str, of))})" for name, of in precisions)


def _quoted(one: Configuration) -> str:
    """The mean over the fresh seeds, beside the one that chose the configuration."""
    fresh, chosen = list(one.fresh_scores().values()), list(one.chosen_scores().values())
    spread = f" +- {sd(fresh):.2f}" if len(fresh) > 1 else ""
    text = f"{mean(fresh):.2f}{spread} on {len(fresh)} fresh seeds: quote this"
    return f"{text} ({mean(chosen):.2f} on the {len(chosen)} that chose it)" if chosen else text


def _lost(one: Configuration) -> str:
    ends = {"failed": "failed", "pruned": "stopped at the end of a stage"}
    lost = sorted(one.lost().items())
    found = {
        text: ",".join(str(seed) for seed, reason in lost if reason == loss)
        for loss, text in ends.items()
    }
    return "; ".join(f"{seeds} {text}" for text, seeds in found.items() if seeds)
