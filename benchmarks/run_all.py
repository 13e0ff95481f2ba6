"""Run the benchmarks one after another, and print one table.

`make bench` runs those that take a few minutes; `make bench-all` (`--long`) also those that take
up to an hour. Each script runs in its own process, so that none inherits memory or caches.
`--write` also puts the table and the machine's description into benchmarks/speed.md.

    python benchmarks/run_all.py [--long] [--only NAME ...] [--write] [--quick] [--json]
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measuring import ROOT, describe_machine, options, table

SHORT = ("training", "encoding", "transfer")
LONG = ("paper_trial", "scheduling", "history", "cluster_jobs")
# These run by themselves: one counts wrong verdicts, the other needs a GPU.
APART = ("judging", "gpu")
# It replays searches over tables that its command line names, and prints rows of its own.
WITH_TABLES = ("replay",)

PAGE = ROOT / "benchmarks" / "speed.md"
_BEGIN, _END = "<!-- {name}: begin -->", "<!-- {name}: end -->"


def main() -> None:
    """Run, print, and write where that is asked for."""
    given = options(__doc__, _own_options)
    names = given.only or (SHORT + LONG if given.long else SHORT)
    facts = [row for name in names for row in _facts(name, quick=given.quick)]
    said = f"{describe_machine()}; load {os.getloadavg()[0]:.1f} at the end"
    print(json.dumps(facts, indent=1) if given.json else f"{table(facts)}\n\n{said}")
    sys.stdout.flush()
    if given.write:
        write(PAGE, "table", f"{said}, {time.strftime('%Y-%m-%d')}.\n\n{table(facts)}")


def _own_options(parser: Any) -> None:
    names = [*SHORT, *LONG, *APART]
    parser.add_argument("--long", action="store_true", help="those that take up to an hour too")
    parser.add_argument("--only", nargs="+", choices=names)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)} too")


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


def write(page: Path, name: str, text: str) -> None:
    """Put a text between its marks on a page; nothing else of the page changes.

    Raises:
        ValueError: The page has no such marks.
    """
    begin, end = _BEGIN.format(name=name), _END.format(name=name)
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{page} lacks {begin} or {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
