"""Simulate how often `judge` is wrong, and how often it is right with the seeds it asks for.

It measures no speed, and is not run by `make bench`.

    python benchmarks/judging.py [--repetitions N] [--quick] [--json]

Scores are normal, with an sd of 1 a seed and a part that a seed adds to all configurations alike.
"""

from collections.abc import Iterator

import numpy as np
from measuring import Row, finish, options

from tune_sentcl.judging.comparing import Comparison, ComparisonRules, compare

_SEEDS = (3, 12)
_MOST = ComparisonRules().max_seeds
_LEVEL = 5.0  # per cent of such claims that may be wrong


def main() -> None:
    """Simulate, and print both tables as one."""
    given = options(__doc__, lambda parser: parser.add_argument("--repetitions", type=int))
    repetitions = given.repetitions or (20 if given.quick else 1000)
    finish([*_claims(repetitions), *_findings(repetitions)], given.json)


def _claims(repetitions: int) -> Iterator[Row]:
    """Count the differences that `judge` claims between equal configurations."""
    for configurations in (2, 20):
        rng = np.random.default_rng(configurations)
        found = [_wrong(_noise(rng, configurations, _SEEDS[1])) for _ in range(repetitions)]
        for when, column in zip(("at 3 seeds", "ever"), zip(*found, strict=True), strict=True):
            part = f"no difference, {configurations} configurations: claimed {when}"
            yield Row(part, 100 * sum(column) / repetitions, _LEVEL, "the level", "%", 1.0)


def _findings(repetitions: int) -> Iterator[Row]:
    """Count the true differences that `judge` misses with the seeds that it asks for."""
    for configurations in (2, 20):
        for sds in (1.0, 2.0, 4.0):
            rng = np.random.default_rng(configurations)
            runs = [_followed(rng, configurations, sds) for _ in range(repetitions)]
            once, ever = (100 * sum(run[place] for run in runs) / repetitions for place in (0, 1))
            half, most = np.quantile([run[2] for run in runs], [0.5, 0.9])
            part = f"{sds:g} sds apart, {configurations} configurations:"
            why = f"median {half:.0f}, 90 % {most:.0f} seeds"
            yield Row(f"{part} missed after one request", 100 - once, None, why, "%")
            yield Row(f"{part} missed after all", 100 - ever, None, why, "%")


def _noise(rng: np.random.Generator, configurations: int, seeds: int) -> np.ndarray:
    return rng.normal(size=(configurations, seeds)) + rng.normal(size=seeds)


def _compare(values: np.ndarray, seeds: int, first: int, second: int) -> Comparison:
    scores = {str(row): dict(enumerate(line[:seeds])) for row, line in enumerate(values.tolist())}
    return compare(scores, str(first), str(second))


def _wrong(values: np.ndarray) -> tuple[bool, bool]:
    """Whether the winner is said to beat baseline (0) or runner-up, at 3 seeds and ever."""
    found = []
    for seeds in range(_SEEDS[0], _SEEDS[1] + 1):
        best, second, *_ = np.argsort(-values[:, :seeds].mean(axis=1)).tolist()
        rivals = {0, second} - {best}
        verdicts = {_compare(values, seeds, best, rival).verdict for rival in rivals}
        found.append("ESTABLISHED" in verdicts)
    return found[0], any(found)


def _followed(rng: np.random.Generator, configurations: int, sds: float) -> tuple[bool, bool, int]:
    """Whether the last configuration is found better than 0: after one request, after all."""
    values = _noise(rng, configurations, _MOST)
    values[-1] += sds
    seeds, once, requests = _SEEDS[0], False, 0
    while True:
        found = _compare(values, seeds, configurations - 1, 0)
        established = found.verdict == "ESTABLISHED"
        once |= established and requests <= 1
        if found.more_seeds is None:
            return once, established, seeds
        seeds, requests = seeds + found.more_seeds, requests + 1


if __name__ == "__main__":
    main()
