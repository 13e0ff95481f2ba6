"""Entailed pairs of SICK or MultiNLI as a retrieval task in BEIR's layout, and pairs to train on.

    python docs/examples/retrieval.py DIR sick|mnli FOLDER

FOLDER/task has the queries, FOLDER/pairs.csv the pairs. No pair is one of the task's.

- `sick`: the first sentence of an entailed pair finds the second one among all second sentences of
  the trial file (dev) and the test file (test). The pairs are those of the training file.
- `mnli`: a hypothesis finds the premise that entails it among all premises of the dev file. 1,000
  hypotheses are the split dev, the others test. The pairs are 4,096 of the training file.
"""

import csv
import json
import sys
from pathlib import Path

import pandas as pd

SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
NUM_DEV, NUM_TRAIN = 1_000, 4_096


def sick(root: Path) -> dict[str, pd.DataFrame]:
    """SICK's pairs by split."""
    splits = {}
    for split, name in SICK.items():
        file = root / "downstream" / "SICK" / name
        table = pd.read_csv(file, sep="\t", quoting=csv.QUOTE_NONE)
        table["is_entailed"] = table["entailment_judgment"] == "ENTAILMENT"
        names = {"sentence_A": "query", "sentence_B": "document"}
        splits[split] = table.rename(columns=names)
    return splits


def mnli(root: Path) -> dict[str, pd.DataFrame]:
    """MultiNLI's pairs by split; each text stands in one entailed pair."""
    splits = {}
    for split in ("train", "dev"):
        table = pd.read_parquet(root / "nli" / f"mnli_{split}_partial.parquet")
        table = table.rename(columns={"hypothesis": "query", "premise": "document"})
        entailed = table[table["label"] == "entailment"].sample(frac=1, random_state=0)
        entailed = entailed.drop_duplicates("document").drop_duplicates("query")
        table["is_entailed"] = table.index.isin(entailed.index)
        # Pairs that are not entailed keep their documents.
        splits[split] = table.loc[[*entailed.index, *table.index.difference(entailed.index)]]
    splits["test"] = splits["dev"].iloc[NUM_DEV:]
    splits["dev"] = splits["dev"].iloc[:NUM_DEV]
    return splits


def main(root: str, name: str, to: str) -> None:
    """Read the set below a data root, and write the folder."""
    splits = {"sick": sick, "mnli": mnli}[name](Path(root))
    task = Path(to) / "task"
    (task / "qrels").mkdir(parents=True, exist_ok=True)
    train = splits.pop("train").query("is_entailed")
    documents: dict[str, str] = {}
    queries: dict[str, str] = {}
    judged = set()
    for split, table in splits.items():
        relevant = set()
        for query, document, is_entailed in zip(
            table["query"], table["document"], table["is_entailed"], strict=True
        ):
            found = documents.setdefault(document, f"d{len(documents)}")
            if is_entailed:
                relevant.add((queries.setdefault(query, f"q{len(queries)}"), found))
                judged.add((query, document))
        lines = [f"{query}\t{document}\t1\n" for query, document in sorted(relevant)]
        (task / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    for file, texts in (("corpus", documents), ("queries", queries)):
        rows = (json.dumps({"_id": one, "text": text}) + "\n" for text, one in texts.items())
        (task / f"{file}.jsonl").write_text("".join(rows), encoding="utf-8")
    inside = pd.Series(
        [
            (first, second) in judged or (second, first) in judged
            for first, second in zip(train["query"], train["document"], strict=True)
        ],
        index=train.index,
    )
    names = {"query": "anchor", "document": "positive"}
    pairs = train[~inside][[*names]].rename(columns=names).drop_duplicates()
    pairs[:NUM_TRAIN].to_csv(Path(to) / "pairs.csv", index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
