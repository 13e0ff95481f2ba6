"""The folder that holds the real data sets."""

import os
import tomllib
from functools import lru_cache
from pathlib import Path

from tune_sentcl.errors import DataError, Fault

LAYOUT = "downstream/ as SentEval has it, nli/, wiki/, wordnet/"


@lru_cache(maxsize=1)
def published_counts() -> dict[str, dict[str, dict[str, int]]]:
    """The row counts of published files, grouped as in `sets.toml`."""
    return tomllib.loads(Path(__file__).with_name("sets.toml").read_text(encoding="utf-8"))


def data_root(given: str | Path | None) -> Path | None:
    """The data root as an absolute path: the argument, else TUNE_SENTCL_DATA, else None."""
    folder = given or os.environ.get("TUNE_SENTCL_DATA")
    return Path(folder).expanduser().absolute() if folder else None


def existing_root(root: Path | None, needed_for: str) -> Path:
    """Check that a data root was given and is a folder.

    Args:
        root: The folder, `~` allowed; None if the user gave none.
        needed_for: The part of the program that needs the folder, for the message.

    Returns:
        The folder, with `~` expanded.

    Raises:
        DataError: The folder does not exist, or none was given.
    """
    move = f"Name a folder with {LAYOUT} by `--data DIR` or TUNE_SENTCL_DATA."
    if root is None:
        raise DataError(Fault("--data", rule=f"{needed_for} needs a data root", move=move))
    folder = root.expanduser()
    if not folder.is_dir():
        rule = "this is not a folder" if folder.exists() else "the folder does not exist"
        raise DataError(Fault(str(folder), rule=f"{rule}, and {needed_for} needs it", move=move))
    return folder
