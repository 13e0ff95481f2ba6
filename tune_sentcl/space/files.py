"""Space files by name: those that come with the package, and people's own."""

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tune_sentcl.config import Values
from tune_sentcl.errors import Fault, SpaceError
from tune_sentcl.space.space import Space, build_space


def space_names() -> list[str]:
    """Names of the spaces that come with the package, sorted."""
    root = spaces_folder()
    return sorted(
        path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.toml")
    )


def spaces_of(paper: str) -> Iterator[Space]:
    """The spaces that come with the package and hold rows of a paper's tables.

    Args:
        paper: Its short name, as in the files.
    """
    for name in space_names():
        # The others are not built: that takes ten times as long as reading them.
        head = tomllib.loads((spaces_folder() / f"{name}.toml").read_text(encoding="utf-8"))
        if head.get("tables") and paper in head.get("paper", "").split(", "):
            yield load_space(name)


def load_space(name: str | Path, overrides: Values | None = None) -> Space:
    """Read a space, check all of it, and list its distinct configurations.

    Args:
        name: A shipped name such as `scl/lambda`, or the path of a TOML file.
        overrides: Dotted keys that replace the file's values in every trial, as `--set` does.

    Raises:
        SpaceError: There is no such space, or the file is no space.
        ConfigError: A trial of it is not legal; every fault of the file is listed.
    """
    path = _locate(str(name))
    try:
        return build_space(path.read_text(encoding="utf-8"), str(path), dict(overrides or {}))
    except FileNotFoundError:
        move = "Check the path, or name a space that comes along: tune-sentcl spaces."
        raise SpaceError(Fault(str(path), "", "", "no such file", move)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        rule = f"must be a readable TOML file ({error})"
        raise SpaceError(Fault(str(path), "", "", rule, "Mend the file.")) from None


def spaces_folder() -> Path:
    """Where the spaces lie that come with the package; in a checkout, beside it."""
    package = Path(__file__).parents[1]
    installed = package / "search_spaces"
    return installed if installed.is_dir() else package.parent / "search_spaces"


def _locate(name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name)
    if name in space_names():
        return spaces_folder() / f"{name}.toml"
    near = difflib.get_close_matches(name, space_names(), n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else "List them: tune-sentcl spaces."
    if Path(name).is_file():
        hint = "The name of a space file must end in .toml."
    raise SpaceError(Fault("SPACE", "", name or "''", "no space of this name", hint))
