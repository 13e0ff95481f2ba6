"""How often `judge` is wrong, and how often right with the seeds that it asks for; simulated.

    python benchmarks/judging.py [REPETITIONS]

Scores are normal, with an sd of 1 a seed and a part that a seed adds to all configurations alike.
"""

import sys

import numpy as np

from tune_sentcl.analysis.comparing import Comparison, Rules, compare

_SEEDS = (3, 12)
_MOST = Rules().most


def main(repetitions: int) -> None:
    """Print both tables."""
    print(f"no difference, {repetitions} repetitions: a claim stood at 3 seeds / ever, 3 to 12")
    for configurations in (2, 20):
        rng = np.random.default_rng(configurations)
        found = [_wrong(_noise(rng, configurations, _SEEDS[1])) for _ in range(repetitions)]
        three, ever = (sum(column) for column in zip(*found, strict=True))
        print(f"  {configurations} configurations: {three} / {ever}")
    print(
        f"a true difference, {repetitions} repetitions from 3 seeds on: established when the "
        "seeds that were asked for first had run / had run as often as asked; the seeds then"
    )
    for configurations in (2, 20):
        for sds in (1.0, 2.0, 4.0):
            rng = np.random.default_rng(configurations)
            runs = [_followed(rng, configurations, sds) for _ in range(repetitions)]
            once, ever = (sum(run[place] for run in runs) for place in (0, 1))
            seeds = np.quantile([run[2] for run in runs], [0.5, 0.9])
            print(
                f"  {configurations} configurations, {sds:g} sds: {once} / {ever}; median "
                f"{seeds[0]:.0f}, 90 % {seeds[1]:.0f} seeds"
            )


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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
