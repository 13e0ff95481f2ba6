"""The model card of an exported folder."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tune_sentcl.config import UNTRAINED, flatten
from tune_sentcl.export.rerun_command import ROOT, STUDY, as_toml
from tune_sentcl.objective import parse_objectives

Record = dict[str, Any]
"""The content of `tune_sentcl.json` for an exported model."""

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SCORE = ("task", "split", "metric", "protocol", "data", "n")
_Scores = Sequence[Mapping[str, Any]]


def card(record: Record, *, width: int, pooling: str, max_length: int) -> str:
    """Render the card as Markdown, with the facts of a model."""
    from huggingface_hub import ModelCardData
    from jinja2 import Environment

    config = record["trial"]["config"]
    start = config["encoder"]["checkpoint"]
    head = ModelCardData(
        base_model=start if _HUB.fullmatch(start) and not Path(start).exists() else None,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "tune-sentcl"],
    )
    # Markdown for people to read, in which HTML's escapes would show.
    pages = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    pages.filters |= {"line": _line, "number": _number}
    text = pages.from_string(Path(__file__).with_name("card.md.jinja").read_text("utf-8")).render(
        {**record, "width": width, "pooling": pooling, "max_length": max_length},
        start=start,
        method=_method(config["method"]),
        by_test=parse_objectives([record["objective"]], allow_test=True)[0].split == "test",
        rows=list(_rows(record["scores"], record["untrained"])),
        settings="\n".join(f"{k} = {as_toml(v)}" for k, v in flatten(config) if v is not None),
        study=STUDY,
        root=ROOT,
    )
    return f"---\n{head.to_yaml()}\n---\n\n{text}\n"


def _line(name: object) -> str:
    """A name in one line that no mark of Markdown ends."""
    return " ".join(str(name).replace("`", "'").replace("|", "/").split())


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _method(method: Mapping[str, Any]) -> str:
    if method["name"] != "none":
        return f"method `{method['name']}`"
    return f"{UNTRAINED}, whitened" if method["whitening"] else UNTRAINED


def _rows(scores: _Scores, untrained: _Scores) -> Iterator[list[Any]]:
    """A table of every score of a whole task, with those of the encoder that it started from."""
    groups, before = _by_kind(scores), _by_kind(untrained)
    yield [*_SCORE, *(["untrained"] if before else []), "value"]
    for kind, found in groups.items():
        yield [*kind, *([before.get(kind, "")] if before else []), found]


def _by_kind(scores: _Scores) -> dict[tuple[Any, ...], str]:
    """The scores of whole tasks by kind, over a classifier's seeds."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for score in scores:
        whole = score["subset"] is None and score["aggregation"] in (None, "all")
        if whole and score["value"] is not None:
            groups.setdefault(tuple(score[name] for name in _SCORE), []).append(score["value"])
    return {kind: _mean(values) for kind, values in groups.items()}


def _mean(values: Sequence[float]) -> str:
    spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"
