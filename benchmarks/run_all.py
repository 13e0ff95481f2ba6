"""Run the benchmarks one after another, and print one table.

`make bench` runs those that take a few minutes; `make bench-all` (`--long`) also those that take
up to an hour. Each script runs in its own process, so that none inherits memory or caches.
`make figures` writes the tables of benchmarks/speed.md.

    python benchmarks/run_all.py [--long] [--only NAME ...] [--quick] [--json]
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

from measuring import ROOT, describe_machine, options, table

SHORT = ("training", "encoding", "transfer")
LONG = ("paper_trial", "scheduling", "history", "object_store", "cluster_jobs")
# These run by themselves: one counts wrong verdicts, the other needs a GPU.
APART = ("judging", "gpu")
# These print what the studies or tables that they read say.
OF_RESULTS = ("replay", "replay_summary", "study_table")


def main() -> None:
    """Run, and print; the machine's description goes to stderr."""
    given = options(__doc__, _own_options)
    names = given.only or (SHORT + LONG if given.long else SHORT)
    facts = [row for name in names for row in _facts(name, quick=given.quick)]
    print(json.dumps(facts, indent=1) if given.json else table(facts))
    sys.stdout.flush()
    print(f"{describe_machine()}; load {os.getloadavg()[0]:.1f} at the end", file=sys.stderr)


def _own_options(parser: Any) -> None:
    names = [*SHORT, *LONG, *APART]
    parser.add_argument("--long", action="store_true", help="those that take up to an hour too")
    parser.add_argument("--only", nargs="+", choices=names)


def _facts(name: str, *, quick: bool) -> list[dict[str, Any]]:
    script = ROOT / "benchmarks" / f"{name}.py"
    began = time.monotonic()
    command = [sys.executable, str(script), "--json", *(["--quick"] if quick else [])]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}")
    rows: list[dict[str, Any]] = json.loads(ended.stdout)
    return [{**row, "part": f"{name}: {row['part']}"} for row in rows]


if __name__ == "__main__":
    main()
