"""The sentence of a report says what was gained, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from analysis_samples import Trial, config, objectives, score, write_study
from report_samples import subject_of

from tune_sentcl.analysis.report.figures import role_figure
from tune_sentcl.analysis.report.first_screen import FirstScreen
from tune_sentcl.store.manifest import Confirmation, SeedPlan

Origin = Literal["grid", "sampler", "confirm"]
DEV, TEST = objectives("docs:ndcg@10:dev", "docs:ndcg@10:test")
RATES = {"plain": 1e-5, "hand": 5e-5, "tuned": 4e-4, "other": 1e-6}


def trials(name: str, values: Sequence[float], first: int = 0) -> list[Trial]:
    """Seeds of a configuration, whose test scores are a point lower."""
    own = {"own": ["docs=docs"], "suites": []}
    made = []
    for seed, value in enumerate(values, first):
        method = "none" if name == "start" else "mnr"
        rate = {} if name == "start" else {"optimizer": {"lr": RATES[name]}}
        knobs = config(seed, method, evaluation=own, **rate)
        scores = [score(DEV, value), score(TEST, value - 1)]
        sampled = name in ("tuned", "other")
        origin: Origin = "confirm" if first else "sampler" if sampled else "grid"
        made.append(Trial(f"{name}{seed}", knobs, scores, configuration=name))
        made[-1] = replace(made[-1], origin=origin)
    return made


START, HAND, TUNED, SECOND = [75.8], [91.0, 91.2, 91.1], [95.2, 95.4, 95.3], [93.0, 93.2, 93.1]
SENTENCES: Mapping[str, tuple[dict[str, Sequence[float]], dict[str, Sequence[float]], str]] = {
    "both": (
        {"start": START, "hand": HAND, "tuned": TUNED},
        {"hand": [91.0, 91.1, 91.2], "tuned": [95.2, 95.3, 95.4]},
        "Tuning raised nDCG@10 on dev from 75.8 to 95.3 (test 74.8 to 94.3), 4.2 above your "
        "hand-set hyperparameters; both gains are confirmed on 3 new seeds.",
    ),
    "not yet": (
        {"start": START, "hand": HAND, "tuned": TUNED},
        {},
        "Tuning raised nDCG@10 on dev from 75.8 to 95.3 (test 74.8 to 94.3), 4.2 above your "
        "hand-set hyperparameters; neither gain is tested on new seeds.",
    ),
    "one of two": (
        {"start": START, "hand": HAND, "tuned": TUNED},
        {"hand": [95.1, 95.4, 95.0], "tuned": [95.2, 95.3, 95.4]},
        "Tuning raised nDCG@10 on dev from 75.8 to 95.3 (test 74.8 to 94.3), 0.13 above your "
        "hand-set hyperparameters; the gain over the untrained encoder is confirmed on 3 new "
        "seeds, that over your hand-set hyperparameters is not proven on 3 new seeds.",
    ),
    "hand-set hyperparameters without new seeds": (
        {"start": START, "hand": HAND, "tuned": TUNED, "other": SECOND},
        {"other": [93.0, 93.1, 93.2], "tuned": [85.2, 85.3, 85.4]},
        "Tuning raised nDCG@10 on dev from 75.8 to 85.3 (test 74.8 to 84.3), 4.2 above your "
        "hand-set hyperparameters; the gain over the untrained encoder is confirmed on 3 new "
        "seeds, that over your hand-set hyperparameters is not tested on new seeds.",
    ),
    "hand-set hyperparameters with seeds of the search": (
        {"start": START, "hand": HAND, "tuned": TUNED, "other": SECOND},
        {"other": [93.0, 93.1, 93.2], "tuned": [95.2, 95.3, 95.4, 95.2, 95.3, 95.4]},
        "Tuning raised nDCG@10 on dev from 75.8 to 95.3 (test 74.8 to 94.3), 4.2 above your "
        "hand-set hyperparameters; the gain over the untrained encoder is confirmed on 3 new "
        "seeds, that over your hand-set hyperparameters is confirmed on 3 search seeds.",
    ),
    "no difference": (
        {"start": START, "hand": [95.3], "tuned": [95.301]},
        {"hand": [95.3, 95.4, 95.2], "tuned": [95.301, 95.401, 95.201]},
        "Tuning raised nDCG@10 on dev from 75.8 to 95.3 (test 74.8 to 94.3), 0.00 above your "
        "hand-set hyperparameters; the gain over the untrained encoder is confirmed on 3 new "
        "seeds, that over your hand-set hyperparameters is negligible on 3 new seeds.",
    ),
    "nothing gained": (
        {"start": START, "hand": [70.0, 70.2, 70.1]},
        {},
        "The search chose the untrained encoder: nDCG@10 on dev 75.8 (test 74.8), 70.1 (test "
        "69.1) for the best other configuration; the difference is not tested on new seeds.",
    ),
    "nothing gained with seeds of the search": (
        {"start": START, "hand": [70.0, 70.2, 70.1]},
        {},
        "The search chose the untrained encoder: nDCG@10 on dev 75.8 (test 74.8), 70.1 (test "
        "69.1) for the best other configuration; the difference is confirmed on 3 search seeds.",
    ),
    "nothing trained": (
        {"start": START},
        {},
        "The untrained encoder has nDCG@10 on dev 75.8 (test 74.8).",
    ),
    "a trained baseline": (
        {"plain": [70.0, 70.2, 70.1], "hand": HAND, "tuned": TUNED},
        {"plain": [70.0, 70.1, 70.2], "hand": [91.0, 91.1, 91.2], "tuned": [95.2, 95.3, 95.4]},
        "Tuning raised nDCG@10 on dev from 70.1 to 95.3 (test 69.1 to 94.3), 4.2 above your "
        "hand-set hyperparameters; both gains are confirmed on 3 new seeds.",
    ),
    "without an untrained encoder": (
        {"hand": HAND, "other": [80.0, 80.1, 80.2]},
        {},
        "The best of 2 configurations has nDCG@10 on dev 91.1 (test 90.1).",
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_the_sentence(tmp_path: Path, case: str) -> None:
    # Finds scores of the seeds that chose in place of new ones, and a claim without a verdict.
    searched, fresh, sentence = SENTENCES[case]
    rows = [trial for name, values in searched.items() for trial in trials(name, values)]
    rows += [trial for name, values in fresh.items() for trial in trials(name, values, 1000)]
    first = "plain" if "plain" in searched else "start"
    compared = ("tuned", first, "other" if "other" in fresh else "hand")
    look = Confirmation((1000, 1001, 1002), compared)
    planned = len(searched) if case.endswith("of the search") else None
    plan = SeedPlan((0, 1, 2), planned, (first, "hand"), (look,) if fresh else ())
    write_study(tmp_path, rows, [str(DEV)], plan=plan)
    screen = FirstScreen(subject_of(tmp_path))
    assert screen.sentence == sentence
    (figure,) = role_figure(screen)
    assert set(figure.data["seeds"]["name"]) == set(screen.rows)
    assert set(figure.data["seeds"]["split"]) == {"dev", "test"}
