"""The model card of an exported folder: what somebody must know who meets the model alone."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.analysis.whole_sets import is_part
from tune_sentcl.config import flatten
from tune_sentcl.export.card_tables import number, score_lines
from tune_sentcl.export.commands import ROOT, STUDY, as_toml
from tune_sentcl.objective import parse_objectives

Record = dict[str, Any]
"""What `tune_sentcl.json` says of an exported model."""

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def card(record: Record, *, width: int, pooling: str, max_length: int) -> str:
    """The card as Markdown.

    Args:
        record: What is known of the model.
        width: Of an embedding.
        pooling: How token states become one.
        max_length: Longest input in tokens.
    """
    trial = record["trial"]
    config = trial["config"]
    start = config["encoder"]["checkpoint"]
    lines = [
        *_head(start),
        f"# Sentence encoder `{record['model']}`",
        "",
        f"It gives a sentence {width} numbers; pooling is `{pooling}`, inputs are cut after "
        f"{max_length} tokens. It started from `{start}` and has the weights of one trial of a "
        f"search by tune_sentcl (space `{record['space']}`, method `{config['method']['name']}`).",
        "",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        'embeddings = SentenceTransformer("path/of/this/folder").encode(["A sentence."])',
        "```",
        "",
        "Every number below, and more, is in `tune_sentcl.json` beside this file.",
        "",
        "## How it was chosen",
        "",
        *_choice(record),
        "",
        "## Seeds",
        "",
        _seeds(record),
        "",
        "## Training data",
        "",
        _rows(trial),
        "",
        "## Scores",
        "",
        *score_lines(record["scores"]),
        "",
        "## Settings",
        "",
        *_settings(config),
        "",
        "## To reproduce it",
        "",
        *_commands(record),
        "",
        "## Versions",
        "",
        *_versions(record),
        "",
        "## Licence",
        "",
        f"None is stated here. The weights come from `{start}` and from the rows above, whose "
        "terms hold on; choose a licence that they allow, and name it as `license:` in the head "
        "of this file.",
        "",
    ]
    return "\n".join(lines)


def _head(start: str) -> Iterator[str]:
    yield from ("---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity")
    yield from ("tags:", "- sentence-transformers", "- sentence-similarity", "- tune-sentcl")
    if _HUB.fullmatch(start) and not Path(start).exists():
        yield f"base_model: {start}"
    yield from ("---", "")


def _choice(record: Record) -> Iterator[str]:
    objective, value = record["objective"], number(record["value"])
    if record["chosen"] == "named":
        yield f"By its name. By `{objective}` it has {value}."
        return
    yield (
        f"As the best of {record['ranked']} finished trials by `{objective}`, which is {value} "
        "(times 100). The best of many owes a part of that to luck."
    )
    (found,) = parse_objectives([objective], allow_test=True)
    if found.split == "test":
        yield (
            "**That is a test split: as it chose the model, its score says less than a test score "
            "should.**"
        )


def _seeds(record: Record) -> str:
    trial = record["trial"]
    found = trial["over_seeds"]
    text = f"- Trial `{trial['trial_id']}` has seed {trial['seed']}"
    if found.get("objective_n"):
        text += (
            f"; its configuration has `{record['objective']}` "
            f"{_spread(found, 'objective')} by which it could be chosen"
        )
    if found.get("fresh_n"):
        text += f", and {_spread(found, 'fresh')} on seeds that the search never saw"
    return f"{text}."


def _spread(found: Mapping[str, Any], name: str) -> str:
    n = found[f"{name}_n"]
    sd = found[f"{name}_sd"]
    spread = "" if sd is None else f" +- {number(sd)}"
    return f"{number(found[f'{name}_mean'])}{spread} over {n} seed{'s' if n > 1 else ''}"


def _rows(trial: Mapping[str, Any]) -> str:
    data, read = trial["config"]["data"], trial["data_source"]
    if not trial["steps"] and not read:
        return "- None: nothing was trained."
    limit = data.get("limit")
    first = f"at most the first {limit:,} rows that fit the method" if limit else "all rows"
    text = f"- `{data['source']}`: {first}, read from `{read or data['source']}`."
    if is_part(read or data["source"]):
        text += " By its name that is a part of a set."
    if data["source"] == "toy":
        text += " These sentences are generated and say nothing about language."
    return f"{text} Fingerprint of what was read: `{trial['data_fingerprint']}`."


def _settings(config: Mapping[str, Any]) -> Iterator[str]:
    yield "```toml"
    yield from (f"{key} = {as_toml(v)}" for key, v in flatten(config) if v is not None)
    yield "```"


def _commands(record: Record) -> Iterator[str]:
    trial = record["trial"]
    yield (
        f"The trial alone, {STUDY} being a new folder and {ROOT} the folder of the data sets "
        "where that is asked for:"
    )
    yield ""
    yield "```sh"
    yield trial["command"] or f"# {trial['trial_id']}: a config of another release"
    yield "```"
    yield ""
    yield "What was run on the study:"
    yield ""
    yield "```sh"
    yield from record["commands"]
    yield "```"


def _versions(record: Record) -> Iterator[str]:
    trial, written = record["trial"], record["written_with"]
    shown = ", ".join(f"{name} {version}" for name, version in trial["versions"].items())
    commit = f", commit `{trial['git_commit']}`" if trial["git_commit"] else ""
    yield f"- Trained with {shown}{commit}, on {trial['device'] or 'an unknown device'}."
    said = ", ".join(f"{name} {written[name]}" for name in ("tune_sentcl", "torch"))
    yield f"- Exported with {said}."
