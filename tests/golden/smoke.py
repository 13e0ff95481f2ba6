"""Write the golden curves anew: `python -m tests.golden.smoke`, with a line in the changelog.

`smoke_padded.csv` is of the same trial with `encoder.packed = false`, whose dropout draws other
noise.
"""

import csv
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from tune_sentcl.space import load_space
from tune_sentcl.store import StudyDriver, TrialFiles
from tune_sentcl.trial import InputLoader, Output, run

if __name__ == "__main__":
    for name, packed in (("smoke", True), ("smoke_padded", False)):
        space = load_space("smoke", {"encoder.packed": packed})
        config = space.configurations[0]
        with tempfile.TemporaryDirectory() as study:
            StudyDriver.open(study, space=space, command=["golden"]).close()
            inputs = InputLoader(None).load(config)
            output = Output(TrialFiles(study), inputs.trial_id(config), keep_checkpoint=False)
            list(run(config, inputs, output=output))
            (curves,) = (Path(study) / "curves").iterdir()
            points = pq.read_table(curves).to_pylist()
        place = Path(__file__).with_name(f"{name}.csv")
        with place.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", "metric", "value"])
            writer.writerows((p["step"], p["metric"], f"{p['value']:.6f}") for p in points)
