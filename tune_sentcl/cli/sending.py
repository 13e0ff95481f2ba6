"""What may be sent to a cluster: no secret, and nothing that only this machine can read."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.config import CHECKPOINTS, source_names
from tune_sentcl.config.own import own_sources
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.space import Space

_READ = (*CHECKPOINTS, "data.source", "evaluation.own")
"""Knobs that may name a file or a folder."""


def check_sent(space: Space, words: Collection[str]) -> None:
    """See that a command and a space can be read by others, and mean the same elsewhere.

    Args:
        space: Whose text is sent.
        words: The command.

    Raises:
        ConfigError: They hold secrets, or paths below the folder where this command runs.
    """
    faults = [*_secrets(space, words), *_local(space)]
    if faults:
        raise ConfigError(faults)


def check_places(study: str | None, asked: Mapping[str, Any]) -> None:
    """See that the options' places can be found from the cluster.

    Args:
        study: Of `--study`; None: not given yet.
        asked: The options of a search.

    Raises:
        ConfigError: One is relative to the folder where this command runs, or a tracker has none.
    """
    if study is not None:
        check_place("--study", study)
    for other in asked["learn_from"] or ():
        check_place("--learn-from", other)
    if asked["data"] is not None:
        check_place("--data", str(asked["data"]))
    if asked["track"]:
        from tune_sentcl.launch.tracking.named import check_tracking_there

        check_tracking_there(asked["track"], study or "")


def check_place(where: str, place: str) -> None:
    """See that a place can be found from the cluster.

    Raises:
        ConfigError: It is relative to the folder where this command runs.
    """
    if "://" not in place and not place.startswith("/"):
        rule = "is looked for on the cluster, so it must be a URL or begin with /"
        raise ConfigError(Fault(where, "", place or "''", rule, "Write where the cluster has it."))


def _secrets(space: Space, words: Collection[str]) -> Iterator[Fault]:
    from tune_sentcl.store.provenance import mask_text

    rule = "holds a secret, and everybody who sees the cluster's jobs would read it"
    move = "Give the cluster's machines a role, or variables, that open it."
    for word in words:
        masked = mask_text(word)
        if masked != word:
            yield Fault("submit", "", masked, rule, move)
    for number, text in enumerate(space.text.splitlines(), 1):
        masked = mask_text(text)
        if masked != text:
            yield Fault(space.source, f"line {number}", masked.strip(), rule, move)


def _local(space: Space) -> Iterator[Fault]:
    from tune_sentcl.data.rows.sources import JOINED, SOURCES

    rule = "is a relative path, and the job's working directory holds nothing but the space"
    move = "Name where the cluster has it, beginning with /, or its name on the hub."
    names = {"toy", "minilm", "sts-b", *JOINED, *SOURCES}  # which mean the same everywhere
    for key in _READ:
        values = {str(config.dotted().get(key)) for config in space.configurations}
        for span in space.ranges:
            values |= {str(choice) for choice in span.choices if span.key == key}
        if key == "evaluation.own":
            entries = {e for config in space.configurations for e in config.evaluation.own}
            values = {own.path for own in own_sources(sorted(entries)) if own.path}
        elif key == "data.source":
            values = {name for value in values for name in source_names(value)}
        for value in sorted(values - names):
            is_path = key == "evaluation.own" or _is_path(value.removeprefix("random:"), space)
            if is_path and not Path(value.removeprefix("random:")).is_absolute():
                yield Fault(space.source, key, repr(value), rule, move)


def _is_path(value: str, space: Space) -> bool:
    """Whether a name means a file or a folder, and not a data set or an encoder of the hub.

    A folder beside the space counts too: its name there is mistaken for a path of the space.
    """
    from tune_sentcl.data.tables import SUFFIXES

    path = Path(value).expanduser()
    beside = Path(space.source).parent / path
    written = value.startswith(("~", ".")) or path.suffix in SUFFIXES
    return written or path.exists() or beside.exists()
