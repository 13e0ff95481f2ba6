"""A card's tables: the scores of whole tasks, each with its protocol and its number of rows."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tune_sentcl.analysis.whole_sets import task_rows

_PROTOCOLS = {
    "cosine": "correlation of the embeddings' cosines with people's scores; nothing is trained",
    "retrieval": "exact search by the embeddings' cosines, ties as `trec_eval` ranks them",
    "mteb": "MTEB's own evaluator and main score",
    "relatedness": "SentEval's regression on the embeddings, stopped on dev",
    "logreg-10fold": "multinomial logistic regression on the embeddings, nested stratified folds",
    "senteval-10fold": "SentEval's own classifier, 10 folds",
    "senteval-5fold": "SentEval's own classifier in its prototyping form, 5 folds",
    "scl-paper-compat": "`senteval-5fold` on the beginnings of MR and SUBJ that the SCL paper "
    "had; comparable with nothing else",
}
_GENERATED = ("sts", "transfer")
_SCORE = ("data", "task", "split", "metric", "protocol")


def score_lines(scores: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every score of a whole task, what its protocol is, and what could not be measured."""
    whole = [
        score
        for score in scores
        if score["subset"] is None and score["aggregation"] in (None, "all")
    ]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for score in whole:
        if score["value"] is not None:
            groups.setdefault(tuple(score[name] for name in _SCORE), []).append(score)
    yield "Times 100. Numbers under different protocols are different measurements."
    yield ""
    yield from table([_line(found) for found in groups.values()])
    yield ""
    for protocol in dict.fromkeys(score["protocol"] for score in whole):
        plain, _, width = protocol.partition("@")
        if plain in _PROTOCOLS:
            cut = f", of an embedding's first {width} numbers" if width else ""
            yield f"- `{protocol}`: {_PROTOCOLS[plain]}{cut}."
    if any(score["data"] == "toy" and score["suite"] in _GENERATED for score in whole):
        yield "- `toy`: sets that are generated; their numbers say nothing about language."
    for score in whole:
        if score["value"] is None:
            named = f"{score['task']} {score['metric']} by `{score['protocol']}`"
            yield f"- Not measured: {named}: {score['reason']}"


def table(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Rows as Markdown, without the columns that are empty in all."""
    if not rows:
        yield "None."
        return
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(row[name].replace('|', '/') for name in names)} |"


def number(value: float | None) -> str:
    """A score with two decimals."""
    return "none" if value is None else f"{value:.2f}"


def _line(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """One score; over the seeds of a classifier that draws at random their mean."""
    first = found[0]
    values = [score["value"] for score in found]
    spread = f" +- {number(statistics.stdev(values))}" if len(values) > 1 else ""
    seeds = [str(s["classifier_seed"]) for s in found if s["classifier_seed"] is not None]
    return {
        "task": first["task"],
        "split": first["split"],
        "metric": first["metric"],
        "protocol": f"`{first['protocol']}`",
        "classifier seeds": ", ".join(seeds),
        "sets": first["data"],
        "rows": _counted(first),
        "value": f"{number(statistics.fmean(values))}{spread}",
    }


def _counted(score: Mapping[str, Any]) -> str:
    """How many rows a score is of, and of how many, where the set was not whole."""
    n = score["n"]
    if score["data"] != "root" or score["split"] == "train":
        return f"{n:,}"
    try:
        whole = task_rows(score["task"], score["split"], "")
    except KeyError:
        return f"{n:,}"
    if score["split"] == "dev" and score["suite"] == "transfer":
        return f"{n:,}"
    return f"{n:,} of {whole:,}" if n < whole else f"{n:,}"
