"""Who wrote a study: library versions, git commit, and the command line without its secrets."""

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from tune_sentcl.store.schema import LIBRARIES

HIDDEN = "HIDDEN"
"""What stands in place of a secret."""

# Names are matched by parts: `keyboard` and `max-tokens` are none, `apiKey` and `HF_TOKEN` are.
_SECRET = re.compile(
    r"token(?!s|iz)|secret|passw|passphrase|credential|apikey|accesskey|authorization|signature"
    r"|^aws_|(?:^|[-_.])(?:key|auth|pwd|pat|sas|sig)(?:$|[-_.])",
    re.IGNORECASE,
)
_NAMED = re.compile(r"""([A-Za-z0-9_.-]+)["']?\s*[=:]\s*(?!//)""")
_LOGIN = re.compile(r"://(?:[^/@\s:]*:[^@\s]*(?:@[^@/\s]*)*|[^/@\s]+)@")


@cache
def library_versions() -> Mapping[str, str]:
    """Versions of Python and the libraries by `LIBRARIES`; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        if name != "python":
            try:
                found[name] = importlib.metadata.version(name.replace("_", "-"))
            except importlib.metadata.PackageNotFoundError:
                continue
    return MappingProxyType(found)


def git_commit() -> str | None:
    """The commit checked out in the working directory.

    Returns:
        40 hexadecimal digits, with `-dirty` behind them where a tracked file was changed; None
        outside a checkout or without git.
    """
    commit = _git("rev-parse", "--verify", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    if not commit or changes is None:
        return None
    return f"{commit}-dirty" if changes else commit


def _git(*arguments: str) -> str | None:
    # Without the optional locks a status writes nothing into the user's checkout.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=20, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def mask_command(command: Sequence[str]) -> str:
    """One line for a shell, with secrets hidden; rather too much is hidden than too little.

    Hidden are the values of options, keys and variables whose name speaks of a secret
    (`--token X`, `key=X`, `password: X`, `AWS_...=X`), and the user and password of a URL.
    """
    words: list[str] = []
    hide_next = False
    for word in command:
        value = hide_next and not word.startswith("--")
        words.append(HIDDEN if value else mask_text(word))
        option = word.startswith("-") and "=" not in word
        hide_next = option and bool(_SECRET.search(word.lstrip("-")))
    return shlex.join(words)


def mask_text(text: str) -> str:
    """The text with the secrets hidden that a name or a URL gives away."""
    text = _LOGIN.sub(f"://{HIDDEN}@", text)
    shown, start = "", 0
    for match in _NAMED.finditer(text):
        if match.start() < start or not _SECRET.search(match[1].lstrip("-")):
            continue
        shown += text[start : match.end()] + HIDDEN
        start = _end_of_value(text, match)
    return shown + text[start:]


def _end_of_value(text: str, match: re.Match[str]) -> int:
    # In a URL's query the next pair follows; elsewhere a secret may hold any sign.
    if "://" not in text[: match.start()]:
        return len(text)
    following = re.compile(r"[&#]").search(text, match.end())
    return following.start() if following else len(text)
