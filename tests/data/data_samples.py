"""Small files in the layouts that the readers expect, and the place of the real ones."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tune_sentcl.data.tasks.sts_data import STS_SUBSETS

REAL_ROOT = Path(__file__).parents[3] / "shared" / "data"

needs_real_data = pytest.mark.skipif(
    not REAL_ROOT.is_dir(), reason="no real data beside the checkout"
)

ROWS = [
    ("A man eats.", "A person eats.", "entailment"),
    ("A man eats.", "A man is “tall”, they say.", "neutral"),
    ("A man eats.", 'Nobody says "eat".', "contradiction"),
    ("NULL", "N/A", "neutral"),
]


def write_nli(path: Path, rows: list[tuple[object, object, object]]) -> Path:
    premises, hypotheses, labels = zip(*rows, strict=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {"premise": list(premises), "hypothesis": list(hypotheses), "label": list(labels)}
    )
    pq.write_table(table, path)
    return path


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_sts_root(root: Path) -> Path:
    """A whole SentEval layout of made-up pairs with the right counts."""
    for name, subsets in STS_SUBSETS.items():
        folder = root / "downstream" / "STS" / f"{name}-en-test"
        for subset, rows in subsets.items():
            pairs = "".join(f"left {row}\tright {row}\n" for row in range(rows))
            golds = "".join(f"{row % 6}\n" for row in range(rows))
            write(folder / f"STS.input.{subset}.txt", pairs)
            write(folder / f"STS.gs.{subset}.txt", golds)
    for split, rows in (("dev", 1500), ("test", 1379)):
        lines = (f"g\tf\ty\t{row}\t{row % 6}.000\tleft {row}\tright {row}" for row in range(rows))
        write(root / "downstream/STS/STSBenchmark" / f"sts-{split}.csv", "\n".join(lines) + "\n")
    for file, rows in (("SICK_trial", 500), ("SICK_test_annotated", 4927)):
        header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
        body = (f"{row}\tleft {row}\tright {row}\t{1 + row % 5}\tNEUTRAL" for row in range(rows))
        write(root / "downstream/SICK" / f"{file}.txt", "\r\n".join([header, *body]) + "\r\n")
    return root
