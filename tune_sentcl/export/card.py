"""The model card of an exported folder: what somebody must know who meets the model alone."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tune_sentcl.analysis.whole_sets import is_part
from tune_sentcl.config import flatten
from tune_sentcl.export.card_tables import number, score_lines, table
from tune_sentcl.export.commands import ROOT, STUDY, as_toml
from tune_sentcl.export.record import Record
from tune_sentcl.objective import parse_objectives

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def card(record: Record, *, width: int, pooling: str, max_length: int) -> str:
    """The card as Markdown.

    Args:
        record: What is known of the model.
        width: Of an embedding.
        pooling: How token states become one.
        max_length: Longest input in tokens.
    """
    members = record["members"]
    first = members[0]["config"]
    start = first["encoder"]["checkpoint"]
    one = "an average of weights" if len(members) > 1 else "one trial's weights"
    lines = [
        *_head(start),
        f"# Sentence encoder `{record['model']}`",
        "",
        f"It gives a sentence {width} numbers; pooling is `{pooling}`, inputs are cut after "
        f"{max_length} tokens. It started from `{start}` and is {one} of a search by tune_sentcl "
        f"(space `{record['space']}`, method `{first['method']['name']}`).",
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
        *_seeds(record),
        "",
        "## Training data",
        "",
        *_rows(members),
        "",
        "## Scores",
        "",
        *score_lines(record["scores"]),
        "",
        "## Settings",
        "",
        *_settings(members),
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
    if record["chosen"] == "best":
        yield (
            f"As the best of {record['ranked']} finished trials by `{objective}`, which is "
            f"{value} (times 100). The best of many owes a part of that to luck."
        )
        (found,) = parse_objectives([objective], allow_test=True)
        if found.split == "test":
            yield (
                "**That is a test split: as it chose the model, its score says less than a test "
                "score should.**"
            )
        return
    members, tried = record["members"], record["tried"]
    recipe = (
        f"a greedy soup (Wortsman et al., 2022): from the best of {len(tried)} trials by "
        f"`{objective}` on, each one's weights stay in the average if that scores no worse with "
        "them"
    )
    if len(members) > 1:
        yield (
            f"As {recipe}. {len(members)} stayed. It is no trial: nobody trained it. It has "
            f"{value} (times 100); its best member has {number(record['best_member'])}. As that "
            "score chose the members, it says less than a test score."
        )
    else:
        yield (
            f"As what is left of {recipe}. No average was as good as the best trial alone, which "
            f"this is, with {value} (times 100). It was measured anew."
        )
    yield ""
    yield from table(
        [
            {
                "trial": f"`{one['trial_id']}`",
                "its own": number(one["value"]),
                "soup with it": number(one["with_it"]),
                "outcome": one["left_out"] or ("in" if one["taken"] else "not in"),
            }
            for one in tried
        ]
    )


def _seeds(record: Record) -> Iterator[str]:
    for member in record["members"]:
        found = member["over_seeds"]
        text = f"- Trial `{member['trial_id']}` has seed {member['seed']}"
        if found.get("objective_n"):
            text += (
                f"; its configuration has `{record['objective']}` "
                f"{_spread(found, 'objective')} by which it could be chosen"
            )
        if found.get("fresh_n"):
            text += f", and {_spread(found, 'fresh')} on seeds that the search never saw"
        yield f"{text}."


def _spread(found: Mapping[str, Any], name: str) -> str:
    n = found[f"{name}_n"]
    sd = found[f"{name}_sd"]
    spread = "" if sd is None else f" +- {number(sd)}"
    return f"{number(found[f'{name}_mean'])}{spread} over {n} seed{'s' if n > 1 else ''}"


def _rows(members: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    said = []
    for member in members:
        data, read = member["config"]["data"], member["data_source"]
        if not member["steps"] and not read:
            said.append("- None: nothing was trained.")
            continue
        limit = data.get("limit")
        first = f"at most the first {limit:,} rows that fit the method" if limit else "all rows"
        text = f"- `{data['source']}`: {first}, read from `{read or data['source']}`."
        if is_part(read or data["source"]):
            text += " By its name that is a part of a set."
        if data["source"] == "toy":
            text += " These sentences are generated and say nothing about language."
        said.append(f"{text} Fingerprint of what was read: `{member['data_fingerprint']}`.")
    yield from dict.fromkeys(said)


def _settings(members: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for place, member in enumerate(members):
        config = dict(flatten(member["config"]))
        before = dict(flatten(members[0]["config"])) if place else {}
        changed = {k: v for k, v in config.items() if k not in before or before[k] != v}
        if len(members) > 1:
            yield f"Trial `{member['trial_id']}`" + (", where it differs:" if place else ":")
            yield ""
        yield "```toml"
        yield from (f"{key} = {as_toml(v)}" for key, v in changed.items() if v is not None)
        yield "```"
        if place < len(members) - 1:
            yield ""


def _commands(record: Record) -> Iterator[str]:
    several = len(record["members"]) > 1
    yield (
        f"The trial{'s' if several else ''} alone, {STUDY} being a new folder and {ROOT} the "
        "folder of the data sets where that is asked for:"
    )
    yield ""
    yield "```sh"
    for member in record["members"]:
        yield member["command"] or f"# {member['trial_id']}: a config of another release"
    yield "```"
    yield ""
    yield "What was run on the study:"
    yield ""
    yield "```sh"
    yield from record["commands"]
    yield "```"


def _versions(record: Record) -> Iterator[str]:
    trained = []
    for member in record["members"]:
        shown = ", ".join(f"{name} {version}" for name, version in member["versions"].items())
        commit = f", commit `{member['git_commit']}`" if member["git_commit"] else ""
        trained.append(
            f"- Trained with {shown}{commit}, on {member['device'] or 'an unknown device'}."
        )
    yield from dict.fromkeys(trained)
    written = record["written_with"]
    said = ", ".join(f"{name} {written[name]}" for name in ("tune_sentcl", "torch"))
    yield f"- Exported with {said}."
