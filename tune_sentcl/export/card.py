"""The model card of an exported folder."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tune_sentcl.analysis.papers.required_data import is_part, task_rows
from tune_sentcl.config import UNTRAINED, flatten
from tune_sentcl.export.rerun_command import ROOT, STUDY, as_toml
from tune_sentcl.objective import parse_objectives

_PROTOCOLS = {
    "cosine": "correlation of the embeddings' cosines with annotated scores; nothing is trained",
    "retrieval": "exact search by the embeddings' cosines, ties ranked as in `trec_eval`",
    "mteb": "MTEB's own evaluator and main score",
    "relatedness": "SentEval's regression on the embeddings, stopped on dev",
    "logreg-10fold": "multinomial logistic regression on the embeddings, nested stratified folds",
    "senteval-10fold": "SentEval's own classifier, 10 folds",
    "senteval-5fold": "SentEval's own classifier in its prototyping form, 5 folds",
    "scl-paper-compat": "`senteval-5fold` on the truncated files of MR and SUBJ of the SCL "
    "paper; comparable with nothing else",
}
_GENERATED = ("sts", "transfer")
_SCORE = ("data", "task", "split", "metric", "protocol")


def score_lines(
    scores: Sequence[Mapping[str, Any]], untrained: Sequence[Mapping[str, Any]] = ()
) -> Iterator[str]:
    """Every score of a whole task, the protocols, and what could not be measured.

    Args:
        scores: Of the model.
        untrained: Of the encoder that it started from; empty if the study has none.
    """
    whole = [score for score in scores if _is_whole(score)]
    groups, before = _by_kind(whole), _by_kind(untrained)
    rows = []
    for kind, found in groups.items():
        started = _mean_and_sd(before[kind]) if kind in before else ""
        rows.append({**_line(found), "untrained": started, "value": _mean_and_sd(found)})
    yield "Times 100. Numbers under different protocols are different measurements."
    yield ""
    yield from table(rows)
    yield ""
    for protocol in dict.fromkeys(score["protocol"] for score in whole):
        plain, _, width = protocol.partition("@")
        if plain in _PROTOCOLS:
            cut = f", of an embedding's first {width} numbers" if width else ""
            yield f"- `{protocol}`: {_PROTOCOLS[plain]}{cut}."
    if any(score["data"] == "toy" and score["suite"] in _GENERATED for score in whole):
        yield "- `toy`: generated sets; their scores say nothing about natural language."
    for score in whole:
        if score["value"] is None:
            named = f"{score['task']} {score['metric']} by `{score['protocol']}`"
            yield f"- Not measured: {named}: {score['reason']}"


def _is_whole(score: Mapping[str, Any]) -> bool:
    return score["subset"] is None and score["aggregation"] in (None, "all")


def _by_kind(
    scores: Sequence[Mapping[str, Any]],
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """The scores of whole tasks by kind; several are those of a classifier's seeds."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for score in filter(_is_whole, scores):
        if score["value"] is not None:
            groups.setdefault(tuple(score[name] for name in _SCORE), []).append(score)
    return groups


def _mean_and_sd(found: Sequence[Mapping[str, Any]]) -> str:
    values = [score["value"] for score in found]
    spread = f" +- {number(statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{number(statistics.fmean(values))}{spread}"


def table(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Rows as a Markdown table, without columns that are empty in all rows."""
    if not rows:
        yield "None."
        return
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(row[name].replace('|', '/') for name in names)} |"


def number(value: float | None) -> str:
    """A score with two decimals."""
    return "none" if value is None else f"{value:.2f}"


def _line(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Describe a score; several ones are those of a classifier's seeds."""
    first = found[0]
    seeds = [str(s["classifier_seed"]) for s in found if s["classifier_seed"] is not None]
    return {
        "task": first["task"],
        "split": first["split"],
        "metric": first["metric"],
        "protocol": f"`{first['protocol']}`",
        "classifier seeds": ", ".join(seeds),
        "sets": first["data"],
        "rows": _counted(first),
    }


def _counted(score: Mapping[str, Any]) -> str:
    """The number of rows scored, and the size of the set if it was not complete."""
    n = score["n"]
    if score["data"] != "root" or score["split"] == "train":
        return f"{n:,}"
    try:
        whole = task_rows(score["task"], score["split"], "")
    except KeyError:
        return f"{n:,}"
    if score["split"] == "dev" and score["suite"] == "transfer":
        return f"{n:,}"
    return f"{n:,} of {whole:,}" if n < whole else f"{n:,}"


Record = dict[str, Any]
"""The content of `tune_sentcl.json` for an exported model."""

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def card(record: Record, *, width: int, pooling: str, max_length: int) -> str:
    """Render the card as Markdown.

    Args:
        record: The facts about the model.
        width: The width of an embedding.
        pooling: How token states become an embedding.
        max_length: The longest input in tokens.
    """
    trial = record["trial"]
    config = trial["config"]
    start = config["encoder"]["checkpoint"]
    lines = [
        *_head(start),
        f"# Sentence encoder `{record['model']}`",
        "",
        f"It gives a sentence {width} numbers; pooling is `{pooling}`, inputs are truncated to "
        f"{max_length} tokens. It started from `{start}` and has the weights of one trial of a "
        f"search by tune_sentcl (space `{record['space']}`, {_method(config)}).",
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
        *score_lines(record["scores"], record["untrained"]),
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
        f"None is stated here. The weights derive from `{start}` and from the rows above, whose "
        "terms still apply; choose a licence that they allow, and add it as `license:` to the "
        "head of this file.",
        "",
    ]
    return "\n".join(lines)


def _method(config: Mapping[str, Any]) -> str:
    method = config["method"]
    if method["name"] != "none":
        return f"method `{method['name']}`"
    return f"{UNTRAINED}, whitened" if method["whitening"] else UNTRAINED


def _head(start: str) -> Iterator[str]:
    yield from ("---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity")
    yield from ("tags:", "- sentence-transformers", "- sentence-similarity", "- tune-sentcl")
    if _HUB.fullmatch(start) and not Path(start).exists():
        yield f"base_model: {start}"
    yield from ("---", "")


def _choice(record: Record) -> Iterator[str]:
    objective, value = record["objective"], number(record["value"])
    if record["chosen"] == "named":
        yield f"It was named. Its `{objective}` is {value}."
        return
    found = record["trial"]["over_seeds"]
    if found.get("fresh_n"):
        yield (
            f"On seeds that took no part in the choice, its configuration has `{objective}` "
            f"{_spread(found, 'fresh')}: quote this."
        )
    yield (
        "As the best kept trial of the best configuration, among "
        f"{record['ranked']} finished trials by `{objective}`, which is {value} (times 100). The "
        "score of the best of many trials is partly luck."
    )
    (chosen_by,) = parse_objectives([objective], allow_test=True)
    if chosen_by.split == "test":
        yield ("**This is a test split. It chose the model, so its score is biased upwards.**")


def _seeds(record: Record) -> str:
    trial = record["trial"]
    found = trial["over_seeds"]
    text = f"- Trial `{trial['trial_id']}` has seed {trial['seed']}"
    if found.get("objective_n"):
        text += (
            f"; its configuration has `{record['objective']}` "
            f"{_spread(found, 'objective')} on the seeds that chose it"
        )
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
        text += " By its name, this is a part of a set."
    if data["source"] == "toy":
        text += " These sentences are generated and say nothing about natural language."
    return f"{text} Fingerprint of what was read: `{trial['data_fingerprint']}`."


def _settings(config: Mapping[str, Any]) -> Iterator[str]:
    yield "```toml"
    yield from (f"{key} = {as_toml(v)}" for key, v in flatten(config) if v is not None)
    yield "```"


def _commands(record: Record) -> Iterator[str]:
    trial = record["trial"]
    yield (
        f"The trial alone; replace {STUDY} by a new folder and {ROOT}, if present, by the folder "
        "of the data sets:"
    )
    yield ""
    yield "```sh"
    yield trial["command"] or f"# {trial['trial_id']}: a config of another release"
    yield "```"
    yield ""
    yield "The commands that were run on the study:"
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
