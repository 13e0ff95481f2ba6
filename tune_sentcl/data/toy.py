"""Toy sets with known answers, and an example domain, from a file of `tests/toy_generator`."""

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.data.task import ClassifiedRows, StsSplit, StsSubset, StsTask, TransferTask


@cache
def _rows(name: str, split: str) -> pa.Table:
    wanted = [("set", "=", name), ("split", "=", split)]
    table = pq.read_table(Path(__file__).with_suffix(".parquet"), filters=wanted)
    return table.drop(["set", "split"]).combine_chunks()


def toy_nli() -> pa.Table:
    """512 labeled pairs: `premise`, `hypothesis`, and `label: int8` as in SNLI."""
    _, first, second, label = _rows("NLI", "train").columns
    return pa.table({"premise": first, "hypothesis": second, "label": label.cast(pa.int8())})


def toy_graded() -> pa.Table:
    """300 pairs in place of STS-B's train split: `sentence1`, `sentence2`, `score` (0 to 5)."""
    _, first, second, score = _rows("STS-B", "train").columns
    return pa.table({"sentence1": first, "sentence2": second, "score": score})


def toy_sts(name: str, split: StsSplit) -> StsTask:
    """Toy pairs with the name and split of a real task; STS12 to STS16 have two subsets."""
    subsets: dict[str, list[Any]] = {}
    for subset, *pair in zip(*_rows(name, split).to_pydict().values(), strict=True):
        subsets.setdefault(subset, []).append(pair)
    parts = (
        StsSubset(subset_name, *zip(*pairs, strict=True)) for subset_name, pairs in subsets.items()
    )
    return StsTask(name, split, tuple(parts), "toy")


def toy_transfer(name: str) -> TransferTask:
    """A small toy set with the name and the splits of a transfer task."""
    parts: dict[str, Any] = {}
    for split in ("train", "dev", "test"):
        _, first, pair, label = map(tuple, _rows(name, split).to_pydict().values())
        if first:
            parts[split] = ClassifiedRows(first, pair if pair[0] else None, tuple(map(int, label)))
    return TransferTask(name, **parts, data="toy")


def toy_vocabulary() -> list[str]:
    """The tokenizer pieces of the toy encoder: BERT's special tokens, then the others, sorted."""
    return [*_rows("vocabulary", "")["first"].to_pylist()]


def write_domain(folder: Path) -> None:
    """Write the example domain: `pairs.csv`, `support` in BEIR's layout, and a search space."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "support.toml").write_bytes(Path(__file__).with_name("support.toml").read_bytes())
    for row in _rows("domain", "").to_pylist():
        (folder / row["first"]).parent.mkdir(parents=True, exist_ok=True)
        (folder / row["first"]).write_bytes(row["second"].encode())
