"""Provenance of a study: library versions, git commit and command line, with secrets hidden."""

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
"""The text that replaces a secret."""

# Names are matched by parts: `apiKey` and `HF_TOKEN` are secrets, `keyboard` and `max-tokens` not.
_SECRET = re.compile(
    r"token(?!s|iz)|secret|passw|passphrase|credential|apikey|accesskey|authorization|signature"
    r"|^aws_|(?:^|[-_.])(?:key|auth|pwd|pat|sas|sig)(?:$|[-_.])",
    re.IGNORECASE,
)
# Names of secrets only, also in prose. A bare `key` or `token` can be an ordinary word.
_CERTAIN_NAMES = re.compile(
    r"passw(?:or)?d$|passphrase|secret|(?:api|access|private)[-_.]?key|^authorization$|^aws_"
    r"|(?:^|[-_.])(?:api|auth|access|refresh|session|hf|hub|git(?:hub|lab)?|wandb)[-_.]token$",
    re.IGNORECASE,
)
_NAMED = re.compile(r"""([A-Za-z0-9_.-]+)["']?\s*[=:]\s*(?!//)""")
_LOGIN = re.compile(r"://(?:[^/@\s:]*:[^@\s]*(?:@[^@/\s]*)*|[^/@\s]+)@")
_QUERY = re.compile(r"(?<=[?&])([A-Za-z0-9_.-]+)=([^\s&#\"'<>]*)")
_PAIR = re.compile(
    r"""(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]+)(["']?[ \t]*[=:][ \t]*)(?!//)"""
    r"""("[^"\n]*"|'[^'\n]*'|(?:(?:Bearer|Basic)[ \t]+)?[^\s"']+)"""
)
_ISSUED = re.compile(
    r"\b(?:(?:hf_|sk-|gh[pousr]_|AKIA|ASIA)[A-Za-z0-9]{16,}|github_pat_\w{16,})"
    r"|(?<=\bBearer )[\w.~+/-]{8,}"
)
# Source code in a traceback: an annotation, a call, an item.
_SOURCE = re.compile(r"(?:str|bytes|Any|None|True|False)\b|[A-Za-z_][\w.]*[(\[]")
_DIGIT_BOUNDARIES = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")


@cache
def library_versions() -> Mapping[str, str]:
    """Versions by the names in `LIBRARIES`; libraries that are not installed are left out."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        if name != "python":
            try:
                found[name] = importlib.metadata.version(name.replace("_", "-"))
            except importlib.metadata.PackageNotFoundError:
                continue
    return MappingProxyType(found)


def git_commit() -> str | None:
    """The commit checked out in the working directory, with `-dirty` if a tracked file changed.

    Returns:
        40 hexadecimal digits and the suffix; None outside a checkout or without git.
    """
    commit = _git("rev-parse", "--verify", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    if not commit or changes is None:
        return None
    return f"{commit}-dirty" if changes else commit


def _git(*arguments: str) -> str | None:
    # Without optional locks, `git status` does not write into the user's checkout.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=20, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def mask_command(command: Sequence[str]) -> str:
    """Join a command line for a shell and hide its secrets, in doubt too much.

    It hides the user and password of a URL, and the values of options, keys and variables whose
    name suggests a secret (`--token X`, `key=X`, `password: X`, `AWS_...=X`).
    """
    words: list[str] = []
    hide_next = False
    for word in command:
        value = hide_next and not word.startswith("--")
        words.append(HIDDEN if value else _mask_word(word))
        option = word.startswith("-") and "=" not in word
        hide_next = option and bool(_SECRET.search(word.lstrip("-")))
    return shlex.join(words)


def mask_text(text: str) -> str:
    """Hide the secrets, and nothing else, in prose, a path or a URL.

    It hides the user and password of a URL and secrets in its query, values with the name of a
    secret (`password: X`, `api_key=X`), random-looking values with an ambiguous name (`key=X`),
    and tokens with a service's known prefix.
    """
    text = _LOGIN.sub(f"://{HIDDEN}@", text)
    text = _QUERY.sub(_mask_query, text)
    shown, start = "", 0
    while match := _PAIR.search(text, start):
        # A value that is not a secret may contain one: `error: password=X`.
        name, sign, value = match.groups()
        quote = value[0] if value[0] in "\"'" else ""
        shown += text[start : match.start(3)]
        start = match.start(3)
        if _is_secret(name, sign, value.strip("\"'")):
            shown += f"{quote}{HIDDEN}{quote}"
            start = match.end()
    return _ISSUED.sub(HIDDEN, shown + text[start:])


def _mask_word(word: str) -> str:
    word = _LOGIN.sub(f"://{HIDDEN}@", word)
    shown, start = "", 0
    for match in _NAMED.finditer(word):
        if match.start() < start or not _SECRET.search(match[1].lstrip("-")):
            continue
        shown += word[start : match.end()] + HIDDEN
        start = _end_of_value(word, match)
    return shown + word[start:]


def _end_of_value(word: str, match: re.Match[str]) -> int:
    # In a URL's query `&` ends a value; elsewhere a secret may contain any character.
    if "://" not in word[: match.start()]:
        return len(word)
    following = re.compile(r"[&#]").search(word, match.end())
    return following.start() if following else len(word)


def _mask_query(match: re.Match[str]) -> str:
    return f"{match[1]}={HIDDEN}" if _SECRET.search(match[1]) else match[0]


def _is_secret(name: str, sign: str, value: str) -> bool:
    if not value or value == name or _SOURCE.match(value):
        return False
    if _CERTAIN_NAMES.search(name):
        return True
    # `key=s3cr3t` is a secret, `no such key: layer_12` is not.
    length = 6 if sign == "=" else 16
    random = len(value) >= length and len(_DIGIT_BOUNDARIES.findall(value)) > 1
    return random and "." not in value and bool(_SECRET.search(name))
