"""Write the golden curves anew: `python -m tests.golden.smoke`, with a line in the changelog.

`smoke_padded.csv` is of the same trial with `encoder.packed = false`, whose dropout draws other
noise.
"""

import csv
from pathlib import Path

from tune_sentcl.space import load_space
from tune_sentcl.trial import InputLoader, run

if __name__ == "__main__":
    for name, packed in (("smoke", True), ("smoke_padded", False)):
        space = load_space("smoke", {"encoder.packed": packed})
        config = space.configurations[0]
        *_, last = run(config, InputLoader(None).load(config))
        place = Path(__file__).with_name(f"{name}.csv")
        with place.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", "metric", "value"])
            writer.writerows((p.step, p.metric, f"{p.value:.6f}") for p in last.curves)
