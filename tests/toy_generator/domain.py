"""A small example domain: a file of pairs to train on, and a folder of queries to score."""

import csv
import json
from pathlib import Path

import numpy as np

from toy_generator.scenes import (
    Scene,
    draw_hypothesis,
    draw_premise,
    label_of,
    varied_sentence,
)
from tune_sentcl.seeding import stream

_SEED = 20261121


def write_domain(folder: Path, pairs: int = 400, documents: int = 300, queries: int = 240) -> None:
    """Write `pairs.csv` and, in BEIR's layout, `support/`, true by construction.

    A query states a part of its document's scene, in other and often in wider words. A document
    answers every query that follows from it. Even queries are judged in `qrels/dev.tsv`, odd
    queries in `qrels/test.tsv`.
    """
    (folder / "support" / "qrels").mkdir(parents=True, exist_ok=True)
    _write_pairs(folder / "pairs.csv", pairs)
    words = stream(_SEED, "words")
    scenes = _scenes("documents", documents)
    asked = [_question(scene) for scene in scenes[:queries]]
    texts = [_worded(scene, words) for scene in scenes]
    questions = [_worded(scene, words) for scene in asked]
    _write_lines(folder / "support/corpus.jsonl", "d", texts)
    _write_lines(folder / "support/queries.jsonl", "q", questions)
    for split, first in (("dev", 0), ("test", 1)):
        lines = ["query-id\tcorpus-id\tscore"]
        for query in range(first, queries, 2):
            answers = (d for d, scene in enumerate(scenes) if label_of(scene, asked[query]) == 0)
            lines += [f"q{query}\td{document}\t1" for document in answers]
        (folder / f"support/qrels/{split}.tsv").write_text("\n".join(lines) + "\n", "utf-8")


def _write_pairs(path: Path, count: int) -> None:
    words = stream(_SEED, "pair words")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["anchor", "positive"])
        for scene in _scenes("pairs", count):
            writer.writerow([_worded(_question(scene), words), _worded(scene, words)])


def _write_lines(path: Path, letter: str, texts: list[str]) -> None:
    rows = ({"_id": f"{letter}{n}", "text": text} for n, text in enumerate(texts))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _scenes(name: str, count: int) -> list[Scene]:
    """Distinct scenes, from a random stream of this name."""
    generator, found = stream(_SEED, name), dict[Scene, None]()
    while len(found) < count:
        found[draw_premise(generator)] = None
    return list(found)


def _question(scene: Scene) -> Scene:
    """A scene that follows from another: a part of it, often in wider concepts."""
    return draw_hypothesis(stream(_SEED, "questions", str(scene)), scene, 0)


def _worded(scene: Scene, words: np.random.Generator) -> str:
    return varied_sentence(scene, words, reordered=bool(words.random() < 0.4))
