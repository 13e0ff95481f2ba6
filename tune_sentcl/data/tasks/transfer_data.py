"""The transfer tasks: SentEval's files under a data root.

The readers check row counts. They refuse the MR and SUBJ files that macOS `sed` truncated at the
first accent: the SCL paper used such files, but scores on them mean nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from tune_sentcl.data.task import ClassifiedRows, TransferTask
from tune_sentcl.data.tasks.sts_data import COPY_AGAIN, all_read, columns_of
from tune_sentcl.data.text_files import Encoding, read_lines
from tune_sentcl.errors import DataError, Fault

Row = tuple[tuple[str, ...], int]

_COARSE = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_ENTAILMENT = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")


def read_one_class(path: Path, label: int) -> list[Row]:
    """Read a Latin-1 file whose sentences all have one class (MR, CR, SUBJ, MPQA)."""
    return [((_words(line),), label) for line in read_lines(path, "latin-1")]


def read_sst2(path: Path) -> list[Row]:
    """Read a file of SST2: sentence, tab, 0 or 1."""

    def row(line: str) -> Row:
        text, label = line.rstrip().split("\t")
        return (_words(text),), ("0", "1").index(label)

    return _parse(path, "utf-8", row, "a sentence, a tab, and 0 or 1")


def read_sst5(path: Path) -> list[Row]:
    """Read a file of SST5: 0 to 4, space, sentence."""

    def row(line: str) -> Row:
        label, _, text = line.partition(" ")
        return (_words(text),), ("0", "1", "2", "3", "4").index(label)

    return _parse(path, "utf-8", row, "a class from 0 to 4, a space, and a sentence")


def read_trec(path: Path) -> list[Row]:
    """Read a Latin-1 file of TREC: COARSE:fine, space, question; COARSE is the label."""

    def row(line: str) -> Row:
        label, _, text = line.partition(" ")
        return (_words(text),), _COARSE.index(label.partition(":")[0])

    return _parse(
        path, "latin-1", row, f"COARSE:fine and a question; COARSE is {', '.join(_COARSE)}"
    )


def read_mrpc(path: Path) -> list[Row]:
    """Read a file of MRPC: a header, then class, two ids, two sentences, separated by tabs."""

    def row(line: str) -> Row:
        label, _, _, first, second = line.split("\t")
        return (_words(first), _words(second)), ("0", "1").index(label)

    return _parse(path, "utf-8", row, "0 or 1, two numbers and two sentences", header=1)


def read_sick_entailment(path: Path) -> list[Row]:
    """Read the sentences and the column `entailment_judgment` from a file of SICK."""
    header = read_lines(path, "utf-8")[0]
    width, columns = columns_of(path, header, "sentence_A", "sentence_B", "entailment_judgment")

    def row(line: str) -> Row:
        fields = line.split("\t")
        if len(fields) != width:
            raise ValueError(line)
        first, second, label = (fields[column] for column in columns)
        return (_words(first), _words(second)), _ENTAILMENT.index(label.strip())

    return _parse(path, "utf-8", row, f"two sentences and {', '.join(_ENTAILMENT)}", header=1)


def _parse(
    path: Path, encoding: Encoding, row: Callable[[str], Row], rule: str, header: int = 0
) -> list[Row]:
    lines = read_lines(path, encoding)[header:]
    rows = []
    for number, line in enumerate(lines, start=header + 1):
        try:
            rows.append(row(line))
        except ValueError:
            where = f"{path} line {number}"
            shown = line if len(line) < 60 else f"{line[:57]}..."
            raise DataError(
                Fault(where, value=repr(shown), rule=f"a row must be {rule}", move=COPY_AGAIN)
            ) from None
    return rows


def _words(text: str) -> str:
    return " ".join(text.split())


_Split = Literal["train", "dev", "test"]


@dataclass(frozen=True)
class TransferFile:
    """A file of a task: path below `downstream`, rows, reader, and rows if `sed` truncated it."""

    path: str
    rows: int
    read: Callable[[Path], list[Row]]
    truncated: int | None = None


def _binary(
    positive: tuple[str, int], negative: tuple[str, int], *truncated: int | None
) -> dict[_Split, list[TransferFile]]:
    left = truncated or (None, None)
    return {
        "train": [
            TransferFile(*positive, partial(read_one_class, label=1), left[0]),
            TransferFile(*negative, partial(read_one_class, label=0), left[1]),
        ]
    }


def _split(
    files: dict[_Split, tuple[str, int]], read: Callable[[Path], list[Row]]
) -> dict[_Split, list[TransferFile]]:
    return {split: [TransferFile(path, rows, read)] for split, (path, rows) in files.items()}


TASKS: dict[str, dict[_Split, list[TransferFile]]] = {
    "MR": _binary(("MR/rt-polarity.pos", 5331), ("MR/rt-polarity.neg", 5331), 43, 31),
    "CR": _binary(("CR/custrev.pos", 2407), ("CR/custrev.neg", 1368)),
    "SUBJ": _binary(("SUBJ/subj.objective", 5000), ("SUBJ/subj.subjective", 5000), None, 20),
    "MPQA": _binary(("MPQA/mpqa.pos", 3312), ("MPQA/mpqa.neg", 7294)),
    "SST2": _split(
        {
            "train": ("SST/binary/sentiment-train", 67349),
            "dev": ("SST/binary/sentiment-dev", 872),
            "test": ("SST/binary/sentiment-test", 1821),
        },
        read_sst2,
    ),
    "SST5": _split(
        {
            "train": ("SST/fine/sentiment-train", 8544),
            "dev": ("SST/fine/sentiment-dev", 1101),
            "test": ("SST/fine/sentiment-test", 2210),
        },
        read_sst5,
    ),
    "TREC": _split(
        {"train": ("TREC/train_5500.label", 5452), "test": ("TREC/TREC_10.label", 500)}, read_trec
    ),
    "MRPC": _split(
        {
            "train": ("MRPC/msr_paraphrase_train.txt", 4076),
            "test": ("MRPC/msr_paraphrase_test.txt", 1725),
        },
        read_mrpc,
    ),
    "SICK-E": _split(
        {
            "train": ("SICK/SICK_train.txt", 4500),
            "dev": ("SICK/SICK_trial.txt", 500),
            "test": ("SICK/SICK_test_annotated.txt", 4927),
        },
        read_sick_entailment,
    ),
}
"""The files of each task by split."""


def read_transfer(root: Path, name: str) -> TransferTask:
    """Read one task; rows are in SentEval's order, by length in words, then by class.

    Raises:
        DataError: One fault for each missing or damaged file.
        KeyError: There is no such task.
    """
    folder = root / "downstream"
    readers = (partial(read_whole, folder, file) for fs in TASKS[name].values() for file in fs)
    rows_of_files = iter(all_read(readers))
    parts = {
        split: _ordered(row for _ in files for row in next(rows_of_files))
        for split, files in TASKS[name].items()
    }
    return TransferTask(name, parts["train"], parts.get("dev"), parts.get("test"))


def read_truncated(root: Path, name: str) -> TransferTask:
    """Read the rows that a truncation by macOS `sed` leaves of MR (43 + 31) or SUBJ (5000 + 20).

    Only the protocol of the SCL paper uses these rows. The files may be complete or truncated.

    Raises:
        DataError: A file is missing or damaged.
    """
    files = TASKS[name]["train"]
    rows = (
        read_whole(root / "downstream", file, or_truncated=True)[: file.truncated]
        for file in files
    )
    return TransferTask(name, _ordered(chain.from_iterable(rows)))


def read_whole(folder: Path, file: TransferFile, *, or_truncated: bool = False) -> list[Row]:
    """Read a file below `downstream`.

    Raises:
        DataError: The file is missing or damaged, or its number of rows is not the published one.
    """
    path = folder / file.path
    rows = file.read(path)
    if len(rows) == file.rows or (or_truncated and len(rows) == file.truncated):
        return rows
    rule = f"the file must have {file.rows} rows"
    move = "Copy the file again from where the set is published."
    if len(rows) == file.truncated:
        rule += "; macOS sed truncated it at the first byte that is not ASCII"
        move = (
            "Rebuild the file with GNU sed and LC_ALL=C, or use SimCSE's archive from after "
            "2021-09-03."
        )
    raise DataError(Fault(str(path), value=f"{len(rows)} rows", rule=rule, move=move))


def _ordered(rows: Iterable[Row]) -> ClassifiedRows:
    # SentEval sorts the rows before it forms folds by row number, so the same order is needed to
    # get its folds.
    ordered = sorted(rows, key=lambda row: (*(len(text.split()) for text in row[0]), row[1]))
    texts, labels = zip(*ordered, strict=True)
    first = tuple(text[0] for text in texts)
    second = tuple(text[1] for text in texts) if len(texts[0]) > 1 else None
    return ClassifiedRows(first, second, labels)
