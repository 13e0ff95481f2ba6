"""What tests put on disks: small files, whole SentEval layouts, and a file system of their own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tune_sentcl.data.tasks.sts_data import STS_SUBSETS


def write(path: Path, content: str | bytes) -> Path:
    """A file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_sts_root(root: Path) -> Path:
    """A whole SentEval layout of made-up pairs with the right counts."""
    for name, subsets in STS_SUBSETS.items():
        folder = root / "downstream" / "STS" / f"{name}-en-test"
        for subset, rows in subsets.items():
            pairs = "".join(f"left {row}\tright {row % 7}\n" for row in range(rows))
            golds = "".join(f"{row % 6}\n" for row in range(rows))
            write(folder / f"STS.input.{subset}.txt", pairs)
            write(folder / f"STS.gs.{subset}.txt", golds)
    for split, rows in (("dev", 1500), ("test", 1379)):
        lines = (f"g\tf\ty\t{row}\t{row % 6}.000\tleft {row}\tright" for row in range(rows))
        write(root / "downstream/STS/STSBenchmark" / f"sts-{split}.csv", "\n".join(lines) + "\n")
    for file, rows in (("SICK_trial", 500), ("SICK_test_annotated", 4927)):
        header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
        body = (
            f"{row}\tleft {row}\tright {row % 7}\t{1 + row % 5}\tNEUTRAL" for row in range(rows)
        )
        write(root / "downstream/SICK" / f"{file}.txt", "\r\n".join([header, *body]) + "\r\n")
    return root


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A file system of its own; the test is skipped where this user cannot mount."""
    folder.mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            ["mount", *options, str(folder)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("this machine has no mount command")
    if done.returncode:
        pytest.skip(f"this user cannot mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
