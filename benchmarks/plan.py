"""What `plan` says against what a search takes, on three spaces with real data.

    python benchmarks/plan.py [--quick] [--json] [--only NAME ...]

SCL is measured on a few transfer tasks beside STS, ConIsI on STS with
evaluation points on the way, CLSR on STS from a cache that is empty at first. The encoder is
`minilm`; with `--quick` it is the two-layer `toy`, and CLSR has a third of its steps. Each search
begins with an empty study; nothing else should run on the machine.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import Row, data_root, finish, options

TRANSFER = ("CR", "TREC", "SICK")
COMMON = """
[fixed]
encoder.checkpoint = "{encoder}"
encoder.max_length = 128
"""
SPACES = {
    "SCL with transfer": """
name = "scl"
trials = 4
{common}
encoder.pooling = "mean_without_cls"
data.source = "snli"
data.limit = 640
optimizer.batch_size = 64
evaluation.suites = ["sts", "transfer"]
evaluation.protocols = ["cosine", "logreg-10fold", "senteval-5fold"]
[[block]]
fixed.method.name = "sbert"
[[block]]
fixed.method.name = "scl"
grid.method.lambda = [0.3, 0.7]
[[block]]
fixed.method.name = "scl"
fixed.method.lambda = 0.3
fixed.optimizer.batch_size = 256
""",
    "ConIsI": """
name = "conisi"
trials = 4
{common}
encoder.pooling = "cls"
encoder.train_length = 32
data.source = "wiki"
data.limit = 960
data.order = "shuffled"
data.drop_last = true
optimizer.batch_size = 32
evaluation.every = 10
evaluation.select = "best"
[[block]]
fixed.method.name = "conisi"
grid.method.strategy = ["s", "o1"]
grid.method.lambda = [0.8, 1.0]
""",
    "CLSR": """
name = "clsr"
trials = 12
{common}
encoder.pooling = "mean"
data.source = "sts-b"
data.order = "shuffled"
data.drop_last = true
optimizer.epochs = {epochs}
optimizer.schedule = "cosine"
[[block]]
fixed.method.name = "clsr"
fixed.optimizer.lr = 0.01
grid.optimizer.name = ["lars", "sgd", "adamw"]
grid.optimizer.batch_size = [128, 512]
grid.method.temperature = [0.05, 0.1]
""",
}


def main() -> None:
    """Plan and run each space, and print a table."""
    given = options(__doc__, _own_options)
    names = given.only or ([_QUICKEST] if given.quick else list(SPACES))
    rows = []
    for name in names:
        found = _compare(name, data_root(), given.quick)
        for who in ("planned", "again"):
            off = 100 * abs(found[who] / found["actual"] - 1)
            told = f"{found[who]:.1f} s; took {found['actual']:.1f}, load {found['load']:.1f}"
            rows.append(
                Row(f"{name}, {found['trials']} trials: {_WHO[who]}", off, None, told, "%")
            )
    finish(rows, given.json)


_QUICKEST = "ConIsI"
_WHO = {"planned": "plan is off by", "again": "the search's own estimate is off by"}


def _own_options(parser: Any) -> None:
    parser.add_argument("--only", nargs="+", choices=list(SPACES))


def _compare(name: str, data: Path, quick: bool) -> dict[str, Any]:
    """Seconds as `plan` has them, as the search has them before it begins, and as it takes."""
    common = COMMON.format(encoder="toy" if quick else "minilm")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        space, study = place / "space.toml", place / "study"
        space.write_text(SPACES[name].format(common=common, epochs=40 if quick else 120))
        os.environ["TUNE_SENTCL_CACHE"] = str(place / "cache")
        root = _few_tasks(data, place / "data")
        load = os.getloadavg()[0]
        planned = _planned(space, root)
        command = [sys.executable, "-m", "tune_sentcl", "search", str(space)]
        command += ["--study", str(study), "--data", str(root)]
        ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if ended.returncode not in (0, 1):  # 1: a trial failed, which takes its time as well
            ended.check_returncode()
        record = json.loads((study / "study.json").read_text())["plan"]
    actual = record["actual_seconds"]
    return {
        "space": name,
        "trials": record["trials"],
        "planned": planned,
        "again": record["planned_seconds"],
        "actual": actual,
        "load": load,
    }


def _planned(space: Path, data: Path) -> float:
    from tune_sentcl.history import History
    from tune_sentcl.launch.estimate import estimate_search
    from tune_sentcl.launch.options import SearchOptions
    from tune_sentcl.launch.prepared import prepare
    from tune_sentcl.space import load_space

    prepared = prepare(load_space(space), data, None, SearchOptions())
    prepared.recall(History(prepared.objectives))
    estimate = estimate_search(prepared, None)
    return 0.0 if estimate is None else estimate.seconds


def _few_tasks(data: Path, place: Path) -> Path:
    """A data root of STS and a few transfer tasks; all nine would take a trial seven minutes."""
    (place / "downstream").mkdir(parents=True)
    for name in ("nli", "wiki", *(f"downstream/{task}" for task in ("STS", *TRANSFER))):
        (place / name).symlink_to(data / name)
    return place


if __name__ == "__main__":
    main()
