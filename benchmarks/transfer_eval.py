"""Seconds and accuracies of the transfer classifiers on all-MiniLM-L6-v2 embeddings of MR.

    python benchmarks/transfer_eval.py DATA [--classifier senteval | logreg]
        [--fits N | --full] [--threads 2] [--embeddings FILE]

DATA holds `downstream/MR`. SentEval's classifier, all fits together, is timed against the loop of
one fit after another in `tests/evaluate/senteval_loops.py`: by a random sample of N fits, scaled
up, or by all of them, whose outcome is then compared too. `logreg` is timed against SentEval's
nested loop around scikit-learn at its defaults, on one process and on as many as threads; `--full`
repeats the loop with scikit-learn brought to convergence.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from joblib import Parallel, delayed  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tune_sentcl.evaluate.designs import Labeled, Outcome
from tune_sentcl.evaluate.folds import RowNumbers, stratified_folds
from tune_sentcl.evaluate.logreg import SPLIT_STRENGTHS, LogisticClassifier
from tune_sentcl.evaluate.senteval_classifier import SentEvalClassifier
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "evaluate"))
from senteval_loops import DECAYS, LoopClassifier, stratified, take

FOLDS = 10
T = TypeVar("T")


def load_mr(root: Path, cache: Path | None) -> Labeled:
    """Embed MR in SentEval's order, by tokens and label, or read what an earlier run embedded."""
    if cache is not None and cache.exists():
        stored = np.load(cache)
        return Labeled(stored["x"], stored["y"])
    rows = []
    for label, name in enumerate(("neg", "pos")):
        text = (root / "downstream" / "MR" / f"rt-polarity.{name}").read_bytes().decode("latin-1")
        rows += [(line, label) for line in text.removesuffix("\n").split("\n")]
    rows.sort(key=lambda row: (len(row[0].split()), row[1]))
    encoder = load_encoder(resolve_checkpoint("minilm"), "mean", 128)
    features = encoder.encode([sentence for sentence, _ in rows])
    labels = np.array([label for _, label in rows])
    if cache is not None:
        np.savez(cache, x=features, y=labels)
    return Labeled(features, labels)


def compare_senteval(rows: Labeled, fits: int | None) -> None:
    """Time `senteval-10fold` together, then one fit at a time: `fits` of them, or all for None."""
    found, together, used = _timed(lambda: SentEvalClassifier("10fold").nested(rows, FOLDS))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"together: {together:.1f} s ({used:.1f} s of processors), peak {peak:.2f} GiB")
    print(f"  dev {found.dev:.2f}, test {found.test:.2f}, decays {found.chosen}")
    torch.set_num_threads(1)  # the loop's best: its steps are too short for threads to share
    if fits is None:
        told, alone, used = _timed(lambda: LoopClassifier("10fold").nested(rows, FOLDS))
        print(f"one at a time: {alone:.1f} s ({used:.1f} s of processors)")
        differing = int((told.predictions != found.predictions).sum())
        print(f"  dev {told.dev:.2f}, test {told.test:.2f}, decays {told.chosen}")
        print(f"  {differing} of {len(rows.labels)} predictions differ")
    else:
        total = FOLDS * (FOLDS * len(DECAYS) + 1)
        _, alone, used = _timed(lambda: _sampled_fits(rows, fits))
        alone, used = alone * total / fits, used * total / fits
        print(f"one at a time: {alone:.0f} s ({used:.0f} s of processors)")
        print(f"  estimated from {fits} of {total} fits, drawn at random")
    print(f"ratio {alone / together:.1f}")


def compare_logreg(rows: Labeled, processes: int, converged: bool) -> None:
    """Time `logreg-10fold` and scikit-learn's loop, and say how far they agree."""
    LogisticClassifier().nested(take(rows, np.arange(0, len(rows.labels), 20)), 2)  # imports
    runs = [_timed(lambda: LogisticClassifier().nested(rows, FOLDS)) for _ in range(5)]
    found, together, used = sorted(runs, key=lambda run: run[1])[2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"together: median {together:.2f} s ({used:.2f} s of processors), peak {peak:.2f} GiB")
    print(f"  dev {found.dev:.2f}, test {found.test:.2f}, C {found.chosen}")
    told, alone, _ = _timed(lambda: _sklearn_loop(rows, 1, {}))
    _, parallel, _ = _timed(lambda: _sklearn_loop(rows, processes, {}))
    print(f"scikit-learn: {alone:.1f} s, with {processes} processes {parallel:.1f} s")
    _agreement(rows, found, told)
    print(f"ratio {min(alone, parallel) / together:.1f}")
    if converged:
        _agreement(rows, found, _sklearn_loop(rows, processes, EXACT))


EXACT = {"solver": "newton-cholesky", "tol": 1e-8}


def _sklearn_loop(rows: Labeled, jobs: int, options: dict[str, object]) -> Outcome:
    splits = stratified_folds(rows.labels, FOLDS)
    tasks = [delayed(_outer_fold)(rows, train, test, options) for train, test in splits]
    dev, test, predictions, chosen = zip(*Parallel(jobs)(tasks), strict=True)
    everything = np.empty_like(rows.labels)
    for (_, out), predicted in zip(splits, predictions, strict=True):
        everything[out] = predicted
    return Outcome(float(np.mean(dev)), float(np.mean(test)), everything, chosen)


def _outer_fold(
    rows: Labeled, train: RowNumbers, test: RowNumbers, options: dict[str, object]
) -> tuple[float, float, RowNumbers, float]:
    x = rows.features.astype(np.float64) if options else rows.features
    y = rows.labels
    inner = [(train[fit], train[dev]) for fit, dev in stratified_folds(y[train], FOLDS)]
    with threadpool_limits(1):
        scores = []
        for strength in SPLIT_STRENGTHS:
            model = LogisticRegression(C=strength, **options)
            reached = [model.fit(x[fit], y[fit]).score(x[dev], y[dev]) for fit, dev in inner]
            scores.append(round(100 * float(np.mean(reached)), 2))
        chosen = SPLIT_STRENGTHS[int(np.argmax(scores))]
        model = LogisticRegression(C=chosen, **options).fit(x[train], y[train])
        accuracy = round(100 * float(model.score(x[test], y[test])), 2)
        return max(scores), accuracy, model.predict(x[test]), chosen


def _agreement(rows: Labeled, found: Outcome, told: Outcome) -> None:
    print(f"  dev {told.dev:.2f}, test {told.test:.2f}, C {told.chosen}")
    same = sum(one == two for one, two in zip(found.chosen, told.chosen, strict=True))
    won = (found.predictions == rows.labels) * 1 - (told.predictions == rows.labels) * 1
    apart = [int(won[out].sum()) for _, out in stratified_folds(rows.labels, FOLDS)]
    print(f"  same C in {same} of {FOLDS} folds; sentences right, ours less theirs: {apart}")


def _timed(run: Callable[[], T]) -> tuple[T, float, float]:
    start, used = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - start, time.process_time() - used


def _sampled_fits(rows: Labeled, fits: int) -> None:
    outer = [take(rows, train) for train, _ in stratified(rows, FOLDS)]
    for place in np.random.default_rng(0).choice(FOLDS * FOLDS * len(DECAYS), fits, replace=False):
        where, decay = divmod(int(place), len(DECAYS))
        train = outer[where // FOLDS]
        fit, dev = list(stratified(train, FOLDS))[where % FOLDS]
        LoopClassifier("10fold").fit(take(train, fit), take(train, dev), DECAYS[decay], 2)


def main() -> None:
    """Run once and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--classifier", choices=("senteval", "logreg"), default="senteval")
    parser.add_argument("--fits", type=int, default=12)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--embeddings", type=Path, help="an .npz to read, or to write")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = load_mr(given.data, given.embeddings)
    if given.classifier == "senteval":
        compare_senteval(rows, None if given.full else given.fits)
    else:
        compare_logreg(rows, given.threads, given.full)


if __name__ == "__main__":
    main()
