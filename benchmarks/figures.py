"""Make the figures of the documentation, and check that each page shows what was measured.

    python benchmarks/figures.py            # `make figures`: short ones that are missing or old
    python benchmarks/figures.py NAME ...   # these, if they are; `speed` means all of `speed-...`
    python benchmarks/figures.py --check    # `make check`

`figures.toml` lists the figures: tables, sentences, pictures and example pages. A figure has

- `name`, `claim` (what it shows), and `digits` (which of them depend on the machine);
- `command`: bash runs it at the root of the checkout. What it prints is the figure. `$FOLDER` is a
  folder outside of git for studies, which go on after an interruption;
- `pages`: the Markdown pages that have the blocks, and `files`: pictures and pages that it writes;
- `measures`: the paths whose change makes the figure old, or names of `[paths]`. Changes of
  comments and docstrings do not. `study_table.py` and `verdicts.sh` are not among them, because
  they only print: after a change of a number that they print, delete the stamps;
- `study_of`: the figure whose study it shows, which is made first;
- `hours`: roughly. A figure that takes longer than half an hour is made only if it is named;
- `gpu = true`: it needs a GPU, and prints JSON rows. All these together are the block `gpu`.

A page shows a figure between `<!-- figure NAME: begin -->` and `<!-- figure NAME: end -->`. A
figure that was made has a stamp, `benchmarks/figures/NAME.json`, with its text, command, commit,
date, machine, versions, load and seconds. All blocks are written from the stamps, and so are the
blocks `costs` and `gpu`. So after a merge, `make figures` repairs the pages without measuring.
Tables outside of blocks are checked for numbers; sentences and code blocks are not.

Without git, on a machine that only has a copy of the files, set FIGURES_COMMIT to their commit.
"""

import argparse
import ast
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring import COLUMNS, ROOT, cells, describe_machine, markdown

SHORT = 0.5  # hours
PAGES = ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "search_spaces/*.md", "cluster/**/*.md")
SHOWN = {".html", ".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"}
LIBRARIES = ("torch", "sentence-transformers", "ray", "optuna")
EARLIER = "*Not measured at this version: these are figures of an earlier one.*"
NEVER = "*Not measured yet.*"
_BLOCK = re.compile(
    r"(<!-- figure ([\w-]+): begin -->)((?:(?!<!-- figure ).)*)(<!-- figure \2: end -->)", re.S
)
_MARK = re.compile(r"<!-- figure ([\w-]+): (?:begin|end) -->")
_TABLE = re.compile(r"(?:^ *\|.*\n?)+", re.M)
# A table is measured if half of its filled cells begin with a number. Of tables of
# settings, presets and exit codes, at most a third do.
_NUMBER = re.compile(r"[-+±~]?\d")
_STARTED = "begun.json"
_NOTED_EVERY_S = 20.0
Stamps = dict[str, dict[str, Any]]


class FigureError(Exception):
    """A figure cannot be made, or its stamp cannot be read; the message says why."""


@dataclass(frozen=True)
class Figure:
    """An entry of the list; the module's docstring explains its fields."""

    name: str
    claim: str
    command: str
    measures: Sequence[str]
    pages: Sequence[str] = ()
    files: Sequence[str] = ()
    digits: str = ""
    study_of: str = ""
    hours: float = 0.0
    gpu: bool = False

    def is_named(self, names: Sequence[str]) -> bool:
        """Whether one of the names is this figure's, or the first words of it."""
        return any(f"{self.name}-".startswith(f"{name}-") for name in names)


class Checkout:
    """A checkout: its list of figures, their stamps, the pages, and git."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.list = root / "benchmarks" / "figures.toml"
        listed = tomllib.loads(self.list.read_text(encoding="utf-8"))
        names = listed.get("paths", {})
        self.figures = []
        self._known: dict[tuple[str, str], bool] = {}
        for each in listed["figure"]:
            measures = [path for name in each["measures"] for path in names.get(name, [name])]
            self.figures.append(Figure(**{**each, "measures": measures}))

    @property
    def named(self) -> dict[str, Figure]:
        """The figures by name."""
        return {figure.name: figure for figure in self.figures}

    @cached_property
    def has_history(self) -> bool:
        """Whether git knows the whole history here."""
        shallow = ("rev-parse", "--is-shallow-repository")
        return (self.root / ".git").exists() and self.git(*shallow).stdout.strip() == "false"

    def git(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run git here; its exit code is the answer."""
        command = ["git", "-C", str(self.root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def changed(self, commit: str, paths: Sequence[str]) -> bool:
        """Whether paths differ from a commit, also by changes that are not committed."""
        return self.git("diff", "--quiet", commit, "--", *paths).returncode != 0

    def code_changed(self, commit: str, paths: Sequence[str]) -> bool:
        """Whether paths differ from a commit in more than comments and docstrings of Python."""
        names = self.git("diff", "--name-only", "--relative", commit, "--", *paths).stdout
        return any(self._differs(commit, name) for name in names.splitlines())

    def _differs(self, commit: str, name: str) -> bool:
        if (commit, name) not in self._known:  # many stamps have one commit
            self._known[commit, name] = self._code_differs(commit, name)
        return self._known[commit, name]

    def _code_differs(self, commit: str, name: str) -> bool:
        before, file = self.git("show", f"{commit}:./{name}"), self.root / name
        if before.returncode or not file.exists() or file.suffix != ".py":
            return True
        return code_of(before.stdout) != code_of(file.read_text(encoding="utf-8"))

    def in_history(self, commit: str) -> bool:
        """Whether a commit is one of this history, or the history is unknown here."""
        ancestor = ("merge-base", "--is-ancestor", commit, "HEAD")
        return not self.has_history or self.git(*ancestor).returncode == 0

    def commit(self, figure: Figure) -> str:
        """The commit that a figure is measured at.

        Raises:
            FigureError: What it measures has changes that are not committed, or there is no git.
        """
        if (self.root / ".git").exists():
            words = ("status", "--porcelain", "--untracked-files=all", "--", *figure.measures)
            status = self.git(*words)
            if status.returncode:
                raise FigureError(f"git cannot say what has changed: {status.stderr.rstrip()}")
            if found := status.stdout:
                raise FigureError(f"commit what it measures first:\n{found.rstrip()}")
            return self.git("rev-parse", "HEAD").stdout.strip()
        given = os.environ.get("FIGURES_COMMIT", "")
        if not re.fullmatch("[0-9a-f]{40}", given):
            rule = "set FIGURES_COMMIT to the commit of these files, in 40 digits"
            raise FigureError(f"there is no git here: {rule}")
        return given

    @property
    def stamps(self) -> Stamps:
        """What was made, by name.

        Raises:
            FigureError: A file is damaged, by a merge for example.
        """
        found = {}
        for file in sorted((self.root / "benchmarks" / "figures").glob("*.json")):
            stamp = _read(file)
            if not {"command", "commit", "files", "load", "seconds"} <= stamp.keys():
                raise FigureError(f"{file} is damaged: take it from git, or delete it")
            found[file.stem] = stamp
        return found

    @property
    def pages(self) -> dict[str, str]:
        """The text of each page, by its path."""
        found = [page for pattern in PAGES for page in sorted(self.root.glob(pattern))]
        names = [page.relative_to(self.root).as_posix() for page in found]
        return {name: (self.root / name).read_text(encoding="utf-8") for name in names}

    def age(self, figure: Figure, stamps: Stamps) -> str:
        """Why a figure is to be made again; empty if it is up to date."""
        stamp = stamps.get(figure.name)
        if stamp is None:
            return "not measured yet"
        if stamp["command"] != figure.command:
            return "its command has changed"
        if stamp["files"] != digests(self.root, figure.files):
            return "a file that it wrote has changed"
        if not self.in_history(stamp["commit"]):
            return f"its commit {stamp['commit'][:8]} is not in this history"
        if self.has_history and self.code_changed(stamp["commit"], figure.measures):
            return f"older than the last change of what it measures ({stamp['commit'][:8]})"
        return ""


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def code_of(text: str) -> str:
    """What a Python file does: its syntax tree without comments and docstrings."""
    return ast.dump(_WithoutDocstrings().visit(ast.parse(text)))


def digests(root: Path, files: Sequence[str]) -> dict[str, str]:
    """The SHA-256 of each file; empty: there is no file."""
    found = {}
    for name in files:
        path = root / name
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
    return found


def make(checkout: Checkout, names: Sequence[str]) -> int:
    """Make figures, one after another, and write the pages.

    Args:
        checkout: Where.
        names: Of the figures; empty: all short ones.

    Returns:
        The exit code: 1 if a figure failed, 2 if no figure has one of the names.
    """
    for name in names:
        if not any(figure.is_named([name]) for figure in checkout.figures):
            print(f"{checkout.list} has no figure {name!r}", file=sys.stderr)
            return 2
    code = 0
    for figure in checkout.figures:
        is_short = figure.hours <= SHORT and not figure.gpu
        reason = checkout.age(figure, checkout.stamps)
        if not reason or not (figure.is_named(names) if names else is_short):
            if reason and not names and not figure.gpu:
                print(f"{figure.name} is left: {reason}; FIGURES={figure.name} makes it")
            continue
        print(f"{figure.name}: {reason}; about {60 * figure.hours:.0f} min", file=sys.stderr)
        try:
            _make(checkout, figure)
        except FigureError as error:
            print(f"{figure.name} failed: {error}", file=sys.stderr)
            code = 1
        write_pages(checkout)
    write_pages(checkout)
    return code


def _make(checkout: Checkout, figure: Figure) -> None:
    root, commit = checkout.root, checkout.commit(figure)
    if figure.study_of:
        age = checkout.age(checkout.named[figure.study_of], checkout.stamps)
        if age:
            raise FigureError(
                f"it shows the study of {figure.study_of}, which is to be made: {age}"
            )
    folder = root / "studies" / "figures" / figure.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.parent):
        _measure(checkout, figure, folder, commit)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock that the command inherits, and holds too if this process is killed."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        os.set_inheritable(lock, True)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        rule = "another run, or a command that a killed one left behind, still goes on"
        raise FigureError(rule) from None
    try:
        yield
    finally:
        os.close(lock)


def _measure(checkout: Checkout, figure: Figure, folder: Path, commit: str) -> None:
    root, note, started = checkout.root, folder / _STARTED, time.monotonic()
    before = {name: _written(root / name) for name in figure.files}
    begun = {
        "command": figure.command,
        "commit": commit,
        "seconds": 0.0,
        "load": round(os.getloadavg()[0], 1),
        "machine": describe_machine(),
        "versions": {name: version(name) for name in LIBRARIES},
    }
    begun |= _begun_before(checkout, figure, folder, begun)
    spent = begun["seconds"]
    folder.mkdir(exist_ok=True)

    def noted() -> None:
        begun["seconds"] = round(spent + time.monotonic() - started, 1)
        _write(note, begun)

    _write(note, begun)
    try:
        output = _output(root, figure, folder, noted)
    finally:
        noted()
    if (root / ".git").exists() and checkout.changed(commit, figure.measures):
        note.unlink()  # so that no run continues this one
        raise FigureError("what it measures has changed meanwhile")
    absent = [name for name in figure.files if _written(root / name) in (0, before[name])]
    if absent or (figure.pages and not output):
        raise FigureError(f"its command did not write {', '.join(absent) or 'anything'}")
    if _MARK.search(output):
        raise FigureError("its command prints a mark of a figure")
    stamp = {
        **begun,
        "date": time.strftime("%Y-%m-%d"),
        "load": [begun["load"], round(os.getloadavg()[0], 1)],
        "files": digests(root, figure.files),
        **({"rows": _rows(output)} if figure.gpu else {"text": output}),
    }
    target = root / "benchmarks" / "figures" / f"{figure.name}.json"
    target.parent.mkdir(exist_ok=True)
    _write(target, stamp)
    note.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _begun_before(
    checkout: Checkout, figure: Figure, folder: Path, begun: dict[str, Any]
) -> dict[str, Any]:
    """Seconds and load of the interrupted run that this one continues; others are put aside.

    A finished study is not continued: a search would find nothing to do, and its results would
    get the stamp of another version. Nor is one of another machine or of other libraries.
    """
    found = _read(folder / _STARTED)
    same = ("command", "machine", "versions")
    if all(found.get(key) == begun[key] for key in same) and (
        found["commit"] == begun["commit"]
        or not checkout.changed(found["commit"], figure.measures)
    ):
        goes_on = "$FOLDER" in figure.command
        return {key: found[key] for key in ("seconds", "load")} if goes_on else {}
    if folder.exists():
        aside = folder.with_name(f"{folder.name}.{time.time_ns()}")
        folder.rename(aside)
        print(f"{figure.name}: an earlier run is in {aside}", file=sys.stderr)
    return {}


def _read(file: Path) -> dict[str, Any]:
    """The object of a JSON file; empty if the file is absent or damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, value: dict[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(file)


def _written(file: Path) -> int:
    """When a file was written; 0: there is no file."""
    return file.stat().st_mtime_ns if file.is_file() else 0


def _rows(output: str) -> list[dict[str, Any]]:
    """The rows that a figure of the table `gpu` prints."""
    try:
        rows = json.loads(output)
        filled = [cells(row) for row in rows]
    except (ValueError, TypeError, KeyError) as error:
        raise FigureError(f"its command printed no rows of a benchmark ({error!r})") from None
    if not filled:
        raise FigureError("its command printed no row")
    return list(rows)


def _output(root: Path, figure: Figure, folder: Path, noted: Callable[[], None]) -> str:
    """What a figure's command prints; `noted` is called again and again while it runs."""
    # The package of this checkout is measured, whichever one is installed.
    beside = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(root)}
    paths = {name: f"{first}:{os.environ.get(name, '')}" for name, first in beside.items()}
    environment = {**os.environ, **paths, "FOLDER": folder.relative_to(root).as_posix()}
    environment.pop("COLUMNS", None)  # the width of somebody's terminal
    data = root.parent / "shared" / "data"
    if data.is_dir():
        environment.setdefault("TUNE_SENTCL_DATA", str(data))
    command = ["bash", "-euo", "pipefail", "-c", figure.command]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=pipe, text=True, close_fds=False
    ) as process:
        try:
            while (output := _awaited(process)) is None:
                noted()  # a run that is killed notes nothing at its end
        finally:
            process.kill()  # after an interruption; else the process has ended
    if process.returncode:
        raise FigureError(f"its command ended with {process.returncode}")
    return output.strip()


def _awaited(process: subprocess.Popen[str]) -> str | None:
    """What a process has printed; None if it still runs after a while."""
    try:
        return process.communicate(timeout=_NOTED_EVERY_S)[0]
    except subprocess.TimeoutExpired:
        return None


def write_pages(checkout: Checkout) -> None:
    """Bring all blocks of all pages up to date with the stamps."""
    for page, text in checkout.pages.items():
        if (new := rendered(checkout, text)) != text:
            (checkout.root / page).write_text(new, encoding="utf-8")


def rendered(checkout: Checkout, text: str) -> str:
    """A page's text with its blocks as the stamps have them."""
    stamps = checkout.stamps

    def block(found: re.Match[str]) -> str:
        begin, name, body, end = found.groups()
        if name in MADE_OF_STAMPS:
            made = MADE_OF_STAMPS[name](checkout.figures, stamps)
        else:
            made = f"{stamps[name]['text']}\n\n{line_of(stamps[name])}" if name in stamps else ""
        return f"{begin}\n\n{made or _unmeasured(body)}\n\n{end}"

    return _BLOCK.sub(block, text)


def line_of(stamp: dict[str, Any]) -> str:
    """The sentence under a figure that says when and where it was measured."""
    begin, end = stamp["load"]
    when = f"at commit {stamp['commit'][:8]} on {stamp['date']} in {stamp['seconds']:,.0f} s"
    where = f"{stamp['machine']}; load {begin} at the beginning and {end} at the end"
    return f"*Measured {when} ({where}).*"


def _unmeasured(body: str) -> str:
    """A block without a stamp keeps its figures, and says that they are of an earlier version."""
    kept = body.strip().removesuffix(EARLIER).removesuffix(NEVER).strip()
    return f"{kept}\n\n{EARLIER}" if kept else NEVER


def _costs(figures: Sequence[Figure], stamps: Stamps) -> str:
    """What it cost to make each figure that was made; empty as long as none was."""
    columns = ("claim", "command", "seconds", "commit", "digits that depend on the machine")
    rows = []
    for figure in figures:
        if stamp := stamps.get(figure.name):
            command = f"`make figures FIGURES={figure.name}`"
            seconds, commit = f"{stamp['seconds']:,.0f}", stamp["commit"][:8]
            rows.append((figure.claim, command, seconds, commit, figure.digits))
    return markdown(columns, rows) if rows else ""


def _on_gpus(figures: Sequence[Figure], stamps: Stamps) -> str:
    """One table of all figures that need a GPU."""
    rows = []
    for figure in (one for one in figures if one.gpu):
        if stamp := stamps.get(figure.name):
            card = stamp["machine"].rpartition("; ")[2]
            where = f"{card}, {stamp['commit'][:8]}, {stamp['date']}"
            rows += [[*cells(row), where] for row in stamp["rows"]]
        else:
            rows.append([figure.claim, *[""] * (len(COLUMNS) - 1), "unmeasured"])
    return markdown([*COLUMNS, "card, commit, date"], rows)


MADE_OF_STAMPS = {"costs": _costs, "gpu": _on_gpus}


def faults(checkout: Checkout) -> Iterator[str]:
    """What is wrong with the list, the pages and the stamps."""
    pages = checkout.pages
    yield from _faults_of_names(checkout.figures)
    for figure in checkout.figures:
        for page in figure.pages:
            if f"<!-- figure {figure.name}: begin -->" not in pages.get(page, ""):
                yield f"{page} has no block of {figure.name}"
        absent = [path for path in figure.measures if not (checkout.root / path).exists()]
        yield from (f"{figure.name} measures {path}, which does not exist" for path in absent)
    for page, text in pages.items():
        yield from _faults_of_page(checkout, page, text)
    listed = {checkout.root / file for figure in checkout.figures for file in figure.files}
    for path in sorted({*(checkout.root / "docs").rglob("*")} - listed):
        if path.suffix.lower() in SHOWN:
            yield f"{path.relative_to(checkout.root)} is a figure that no entry lists"
    yield from _faults_of_stamps(checkout)


def _faults_of_names(figures: Sequence[Figure]) -> Iterator[str]:
    names = [figure.name for figure in figures]
    for figure in figures:
        if figure.study_of not in ["", *names]:
            yield f"{figure.name} shows the study of {figure.study_of}, which no entry lists"
    for name in sorted({*names}):
        if names.count(name) > 1 or not re.fullmatch(r"[\w-]+", name):
            yield f"figure {name!r} must have a name of its own, of letters, digits, - and _"


def _faults_of_stamps(checkout: Checkout) -> Iterator[str]:
    figures = checkout.named
    for name, stamp in checkout.stamps.items():
        place, commit = f"benchmarks/figures/{name}.json", stamp["commit"]
        if name not in figures:
            yield f"{place} is of a figure that is not listed"
        elif stamp["files"] != digests(checkout.root, figures[name].files):
            yield f"the files of {name} are not those of {place}"
        if not checkout.in_history(commit):
            yield f"{place}: its commit {commit[:8]} is not in this history"


def _faults_of_page(checkout: Checkout, page: str, text: str) -> Iterator[str]:
    for found in _BLOCK.finditer(text):
        owners = [one.name for one in checkout.figures if page in one.pages]
        if found[2] not in [*MADE_OF_STAMPS, *owners]:
            yield f"{page} shows {found[2]}, which no entry lists for this page"
    outside = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)
    if found := _MARK.search(outside):
        yield f"{page} lacks the other mark of {found[0]}"
    for table in _TABLE.finditer(outside):
        rows = table[0].splitlines()[2:]
        filled = [cell for row in rows for cell in map(_bare, row.split("|")) if cell]
        if filled and sum(bool(_NUMBER.match(cell)) for cell in filled) >= len(filled) / 2:
            line = outside.count("\n", 0, table.start()) + 1
            yield f"{page}, line {line}: a measured table that no entry lists"
    if rendered(checkout, text) != text:
        yield f"{page} differs from the stamps; `make figures` writes it"


def _bare(cell: str) -> str:
    return cell.strip(" *`")


def check(checkout: Checkout) -> int:
    """Print faults and old figures.

    Returns:
        The exit code: 1 if there are faults. Old figures are none.
    """
    found = list(faults(checkout))
    stamps = checkout.stamps
    for figure in checkout.figures:
        if age := checkout.age(figure, stamps):
            print(f"{figure.name}: {age}")
    if not checkout.has_history:
        print("git does not know the whole history here, so commits of figures are not checked.")
    for fault in found:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if found else 0


def main() -> int:
    """Make or check the figures of this checkout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="measure nothing")
    given = parser.parse_args()
    checkout = Checkout(ROOT)
    try:
        return check(checkout) if given.check else make(checkout, given.names)
    except FigureError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
