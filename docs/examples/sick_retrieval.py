"""SICK's entailed pairs as a retrieval task in BEIR's layout.

    python docs/examples/sick_retrieval.py DIR sick

A query is the first sentence of a pair that is labeled entailment, relevant are the second ones
that it entails, and every second sentence of SICK's trial and test files is searched. The trial
file's pairs are the split dev, the test file's the split test.
"""

import csv
import json
import sys
from pathlib import Path

FILES = {"dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}


def main(root: str, folder: str) -> None:
    """Read SICK below a data root, and write the folder."""
    to = Path(folder)
    (to / "qrels").mkdir(parents=True, exist_ok=True)
    documents: dict[str, str] = {}
    queries: dict[str, str] = {}
    for split, name in FILES.items():
        relevant = set()
        with (Path(root) / "downstream" / "SICK" / name).open(encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                first, second = row["sentence_A"], row["sentence_B"]
                document = documents.setdefault(second, f"d{len(documents)}")
                if row["entailment_judgment"] == "ENTAILMENT":
                    relevant.add((queries.setdefault(first, f"q{len(queries)}"), document))
        lines = [f"{query}\t{document}\t1\n" for query, document in sorted(relevant)]
        (to / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    for name, texts in (("corpus", documents), ("queries", queries)):
        rows = (json.dumps({"_id": one, "text": text}) + "\n" for text, one in texts.items())
        (to / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
