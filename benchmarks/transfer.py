"""Seconds of the transfer classifiers on all-MiniLM-L6-v2 embeddings of MR, beside their loops.

SentEval's classifier, all fits together, is timed against the loop of one fit after another in
`tests/evaluate/senteval_loops.py`: by a random sample of its fits, scaled up, or by all of them
(`--full`), whose outcome is then compared too, on stderr. `logreg` is timed against SentEval's
nested loop around scikit-learn at its defaults, on one process or on as many as threads, whichever
is faster; `--full` repeats the loop with scikit-learn brought to convergence, and takes all of MR.

    python benchmarks/transfer.py [--classifier senteval | logreg] [--rows N | --full]
        [--fits N] [--threads 2] [--embeddings FILE] [--quick] [--json]
"""

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from joblib import Parallel, delayed  # type: ignore[import-untyped]
from measuring import Measured, Row, data_root, finish, interleaved, options
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tune_sentcl.evaluate.logreg import SPLIT_STRENGTHS, LogisticClassifier
from tune_sentcl.evaluate.senteval_classifier import SentEvalClassifier
from tune_sentcl.evaluate.splits import Labeled, Outcome, RowNumbers, stratified_folds
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "evaluate"))
from senteval_loops import DECAYS, LoopClassifier, stratified, take

FOLDS = 10
T = TypeVar("T")


def load_mr(root: Path, cache: Path | None, count: int | None) -> Labeled:
    """Embed MR in SentEval's order, by tokens and label, or read what an earlier run embedded.

    Args:
        root: The data root.
        cache: An .npz to read, or to write where it is not there.
        count: The number of rows, drawn at random; None: all.
    """
    if cache is not None and cache.exists():
        stored = np.load(cache)
        return Labeled(stored["x"], stored["y"])
    rows = []
    for label, name in enumerate(("neg", "pos")):
        text = (root / "downstream" / "MR" / f"rt-polarity.{name}").read_bytes().decode("latin-1")
        rows += [(line, label) for line in text.removesuffix("\n").split("\n")]
    if count is not None and count < len(rows):
        kept = np.random.default_rng(0).choice(len(rows), count, replace=False)
        rows = [rows[place] for place in kept]
    rows.sort(key=lambda row: (len(row[0].split()), row[1]))
    encoder = load_encoder(resolve_checkpoint("minilm"), "mean", 128)
    features = encoder.encode([sentence for sentence, _ in rows])
    labels = np.array([label for _, label in rows])
    if cache is not None:
        np.savez(cache, x=features, y=labels)
    return Labeled(features, labels)


def compare_senteval(rows: Labeled, fits: int | None, runs: int) -> Row:
    """Time `senteval-10fold` together, then one fit at a time: `fits` of them, or all for None."""
    (together,) = interleaved(lambda: SentEvalClassifier("10fold").nested(rows, FOLDS), runs=runs)
    _say(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the loop's best: its steps are too short for threads to share
    total = FOLDS * (FOLDS * len(DECAYS) + 1)
    if fits is None:
        told, alone = _timed(lambda: LoopClassifier("10fold").nested(rows, FOLDS))
        found = SentEvalClassifier("10fold").nested(rows, FOLDS)
        differing = int((told.predictions != found.predictions).sum())
        _say(f"one at a time: dev {told.dev:.2f}, test {told.test:.2f}, decays {told.chosen}")
        _say(f"together: dev {found.dev:.2f}, test {found.test:.2f}, decays {found.chosen}")
        _say(f"{differing} of {len(rows.labels)} predictions differ")
        peer = "one fit at a time"
    else:
        _, alone = _timed(lambda: _sampled_fits(rows, fits))
        alone *= total / fits
        peer = f"one fit at a time, from {fits} of {total}"
    torch.set_num_threads(threads)
    part = f"MiniLM, senteval-10fold, {len(rows.labels):,} rows"
    return Row(part, together, alone, peer, "s", 10.0)


def compare_logreg(rows: Labeled, processes: int, runs: int, *, converged: bool) -> Row:
    """Time `logreg-10fold` and scikit-learn's loop, and say how far they agree."""
    LogisticClassifier().nested(take(rows, np.arange(0, len(rows.labels), 20)), 2)  # imports
    ours = [_timed(lambda: LogisticClassifier().nested(rows, FOLDS)) for _ in range(runs)]
    found = ours[0][0]
    _say(f"together: dev {found.dev:.2f}, test {found.test:.2f}, C {found.chosen}")
    told, alone = _timed(lambda: _sklearn_loop(rows, 1, {}))
    _, parallel = _timed(lambda: _sklearn_loop(rows, processes, {}))
    _agreement(rows, found, told)
    if converged:
        _agreement(rows, found, _sklearn_loop(rows, processes, EXACT))
    used = 1 if alone < parallel else processes
    peer = f"scikit-learn's loop, {used} processes"
    together = Measured.of([seconds for _, seconds in ours])
    part = f"MiniLM, logreg-10fold, {len(rows.labels):,} rows"
    return Row(part, together, min(alone, parallel), peer, "s", 10.0)


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
    _say(f"scikit-learn: dev {told.dev:.2f}, test {told.test:.2f}, C {told.chosen}")
    same = sum(one == two for one, two in zip(found.chosen, told.chosen, strict=True))
    won = (found.predictions == rows.labels) * 1 - (told.predictions == rows.labels) * 1
    apart = [int(won[out].sum()) for _, out in stratified_folds(rows.labels, FOLDS)]
    _say(f"same C in {same} of {FOLDS} folds; sentences right, ours less theirs: {apart}")


def _timed(run: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _sampled_fits(rows: Labeled, fits: int) -> None:
    outer = [take(rows, train) for train, _ in stratified(rows, FOLDS)]
    for place in np.random.default_rng(0).choice(FOLDS * FOLDS * len(DECAYS), fits, replace=False):
        where, decay = divmod(int(place), len(DECAYS))
        train = outer[where // FOLDS]
        fit, dev = list(stratified(train, FOLDS))[where % FOLDS]
        LoopClassifier("10fold").fit(take(train, fit), take(train, dev), DECAYS[decay], 2)


def main() -> None:
    """Measure both classifiers, or the one that is named."""
    given = options(__doc__, _own_options)
    torch.set_num_threads(given.threads)
    count = None if given.full else given.rows or (200 if given.quick else 2000)
    rows = load_mr(data_root(), given.embeddings, count)
    fits = None if given.full else given.fits or (2 if given.quick else 12)
    found = []
    if given.classifier in (None, "senteval"):
        found.append(compare_senteval(rows, fits, given.runs))
    if given.classifier in (None, "logreg"):
        found.append(compare_logreg(rows, given.threads, given.runs, converged=given.full))
    finish(found, given.json)


def _own_options(parser: Any) -> None:
    parser.add_argument("--classifier", choices=("senteval", "logreg"))
    parser.add_argument("--rows", type=int, help="of MR, drawn at random")
    parser.add_argument("--full", action="store_true", help="all rows, and all of the loop's fits")
    parser.add_argument("--fits", type=int, help="of the loop, from which all are estimated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--embeddings", type=Path, help="an .npz to read, or to write")


if __name__ == "__main__":
    main()
