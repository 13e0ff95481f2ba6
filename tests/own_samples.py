"""Yardsticks of a user's own, as small files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_beir(
    folder: Path,
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, Mapping[str, int]]],
    *,
    header: bool = True,
) -> Path:
    """A folder in BEIR's layout; `qrels` by split, query and document."""
    texts = {"corpus": documents, "queries": queries}
    for name, rows in texts.items():
        lines = [json.dumps({"_id": key, "text": text}) for key, text in rows.items()]
        write_lines(folder / f"{name}.jsonl", lines)
    for split, judged in qrels.items():
        lines = ["query-id\tcorpus-id\tscore"] if header else []
        lines += [f"{q}\t{d}\t{grade}" for q, docs in judged.items() for d, grade in docs.items()]
        write_lines(folder / "qrels" / f"{split}.tsv", lines)
    return folder


def write_pairs(path: Path, rows: Sequence[tuple[str, str, float]]) -> Path:
    lines = [f"{left}\t{right}\t{score}" for left, right, score in rows]
    return write_lines(path, ["sentence1\tsentence2\tscore", *lines])


def write_labeled(path: Path, columns: str, rows: Sequence[tuple[str, ...]]) -> Path:
    return write_lines(path, ["\t".join(columns.split()), *map("\t".join, rows)])
