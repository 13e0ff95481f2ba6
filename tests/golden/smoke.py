"""Write the golden curve anew: `python -m tests.golden.smoke`, with a line in the changelog."""

import csv
from collections.abc import Sequence
from pathlib import Path

from tune_sentcl.space import load_space
from tune_sentcl.store import CurvePoint
from tune_sentcl.trial import InputLoader, run


class _Curves:
    def write_curves(self, trial_id: str, points: Sequence[CurvePoint]) -> None:
        self.points = points

    def write_scores(self, trial_id: str, scores: object) -> None:
        """Only the curves are golden."""

    def add_scores(self, trial_id: str, scores: object) -> None:
        """Only the curves are golden."""

    def write_checkpoint(self, trial_id: str, encoder: object, facts: object) -> None:
        """Only the curves are golden."""


if __name__ == "__main__":
    curves = _Curves()
    config = load_space("smoke").configurations[0]
    list(run(config, InputLoader(None).load(config), output=curves))
    with Path(__file__).with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "metric", "value"])
        writer.writerows((p.step, p.metric, f"{p.value:.6f}") for p in curves.points)
