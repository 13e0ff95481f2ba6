"""Export a trial's model as a folder that sentence-transformers and this package load."""

import json
import os
import re
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc

from tune_sentcl.analysis.frames import rows_of
from tune_sentcl.config import UNTRAINED, evaluation_data_of, flatten, is_trainer
from tune_sentcl.errors import CheckpointError, Fault, StudyError
from tune_sentcl.export.choice import Candidate, Choice
from tune_sentcl.export.rerun_command import ROOT, STUDY, as_toml
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.results.standings import asked_objectives, study_objectives
from tune_sentcl.store.disk import atomic_folder
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.objects import storage_errors
from tune_sentcl.store.rows import LIBRARIES, library_versions
from tune_sentcl.store.study import Study

# Functions import this after they have reported faults, because loading torch takes seconds.
if TYPE_CHECKING:
    from tune_sentcl.model.encoder import Encoder

Record = dict[str, Any]
"""The content of `tune_sentcl.json` for an exported model."""

_TRIAL_COLUMNS = (
    *("trial_id", "configuration", "origin", "seed", "steps", "wall_seconds", "device"),
    *("data_source", "data_fingerprint", "checkpoint_fingerprint", "git_commit", "notes"),
)
_SPREAD = ("objective", "objective_test", "confirm", "confirm_test")


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        record: The content of `tune_sentcl.json`.
        to: The folder.
    """

    record: Record
    to: Path


def export_trial(
    path: str | Path,
    to: str | Path,
    *,
    trial: str | None = None,
    best: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Exported:
    """Write the model of one trial of a study.

    Args:
        path: The study's folder or URL; it is only read.
        to: A folder that does not exist yet.
        trial: The trial's id or a prefix of it; None: the best trial.
        best: The score that chooses the trial, as on the command line; None: the first objective
            of the last search.
        say: Receives a message about the chosen trial before its weights are read.

    Raises:
        BadInputError: The trial or its weights do not exist, the folder exists, or the disk cannot
            be written. No folder is left behind.
    """
    target = _target(path, to)
    study = Study.read(path)
    choice = Choice.read(study, _objective(study, best))
    candidate = choice.best() if trial is None else choice.named(trial)
    record = _record(choice, candidate, "best" if trial is None else "named")
    if say is not None:
        how = f"the best of {len(choice.ranked)}" if trial is None else "as named"
        if trial is None and candidate != choice.ranked[0]:
            how = "the trial with weights that scores best, of the best configuration"
        say(f"writing trial {candidate.trial_id} ({how}) to {target}")
    if is_trainer(candidate.row["method.name"]):
        _copy_trained(study, candidate, record, target)
    else:
        encoder = _encoder_of(study, candidate)
        if candidate.width is not None:
            encoder.settings = {**encoder.settings, "truncate_dim": candidate.width}
        _write(encoder, record, target)
    return Exported(record, target)


def _objective(study: Study, named: str | None) -> Objective:
    if named is not None:
        return asked_objectives(study, [named], "--best")[0]
    return study_objectives(study)[0]


def _record(choice: Choice, candidate: Candidate, how: str) -> Record:
    """The record of a trial's model; `how` is `best` or `named`."""
    study = choice.study
    row = choice.row(candidate.trial_id)
    start = None if candidate.untrained else choice.start_of(candidate)
    return {
        "model": candidate.trial_id,
        "chosen": how,
        "objective": str(choice.objective),
        "value": candidate.value,
        "data": evaluation_data_of(candidate.row),
        "ranked": len(choice.ranked),
        "trial": {
            **{name: row[name] for name in _TRIAL_COLUMNS},
            "config": json.loads(row["config"]),
            "versions": {n: row[f"version_{n}"] for n in LIBRARIES if row[f"version_{n}"]},
            "command": choice.command(row),
            "over_seeds": _spread(choice.over_seeds, row),
        },
        "scores": _scores(study, candidate),
        "untrained": _scores(study, start) if start else [],
        "space": study.manifest.space,
        "commands": list(study.manifest.commands),
        "written_with": dict(library_versions()),
    }


def _scores(study: Study, candidate: Candidate) -> list[dict[str, Any]]:
    rows = study.scores(where=pc.field("trial_id") == candidate.trial_id).to_pylist()
    return [{k: v for k, v in score.items() if k != "trial_id"} for score in rows]


def _spread(table: pd.DataFrame, row: Mapping[str, Any]) -> Record:
    fits = table[table["configuration"] == row["configuration"]]
    if not len(fits):
        return {}
    (values,) = rows_of(fits)
    names = (f"{name}_{statistic}" for name in _SPREAD for statistic in ("mean", "sd", "n"))
    return {name: values[name] for name in names if name in values}


def _target(path: str | Path, to: str | Path) -> Path:
    """The folder to write.

    Raises:
        StudyError: The path is a URL, or the folder exists or would be inside the study.
    """
    if "://" in str(to) or str(to).startswith("file:"):
        rule = "must be a folder on this machine"
        move = "Export to a local folder, then upload that folder."
        raise StudyError(Fault("--to", value=str(to), rule=rule, move=move))
    target = Path(to).expanduser().absolute()
    move = "Choose another place for --to."
    if os.path.lexists(target):
        raise StudyError(Fault("--to", value=str(target), rule="must not exist yet", move=move))
    folder = StudyFiles.at(str(path)).folder
    if folder is not None and target.resolve().is_relative_to(folder.resolve()):
        rule = "must not be inside the study"
        raise StudyError(Fault("--to", value=str(target), rule=rule, move=move))
    return target


def _write(encoder: "Encoder", record: Record, target: Path) -> None:
    from tune_sentcl.model.saving import export

    width = encoder.settings.get("truncate_dim") or encoder.width
    text = _card(record, width=width, pooling=encoder.pooling, max_length=encoder.max_length)
    with storage_errors(str(target)), atomic_folder(target) as scratch:
        export(encoder.cpu(), scratch, record, text)


def _copy_trained(study: Study, candidate: Candidate, record: Record, target: Path) -> None:
    """Copy the model that a trainer's library saved, and add the scores to its card."""
    text = _page("trainer_card.md.jinja", record, rows=list(_rows(record["scores"], [])))
    with (
        storage_errors(str(target)),
        study.checkpoint(candidate.trial_id) as folder,
        atomic_folder(target) as scratch,
    ):
        shutil.copytree(folder, scratch, dirs_exist_ok=True)
        (scratch / "complete").unlink()
        facts = json.dumps({"facts": record}, indent=2, ensure_ascii=False, allow_nan=False)
        (scratch / "tune_sentcl.json").write_text(f"{facts}\n", encoding="utf-8")
        with (scratch / "README.md").open("a", encoding="utf-8") as card:
            card.write(text)


def _encoder_of(study: Study, candidate: Candidate) -> "Encoder":
    """A trial's whole encoder on the CPU, including the layers after its pooling.

    Raises:
        CheckpointError: The files are damaged; or the trial is untrained and its files changed.
        StudyError: The files cannot be read.
    """
    from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
    from tune_sentcl.model.encoder import load_encoder

    if not candidate.kept:
        return _start(candidate)
    with study.checkpoint(candidate.trial_id) as folder:
        checkpoint = resolve_checkpoint(str(folder))
        if checkpoint.pooling is None or checkpoint.max_length is None:
            rule = "the stored model does not state its pooling or maximum length"
            where = study.files.display_path(f"checkpoints/{candidate.trial_id}")
            raise CheckpointError(Fault(where, rule=rule, move="Restore the folder from a copy."))
        encoder = load_encoder(checkpoint, checkpoint.pooling, checkpoint.max_length)
        encoder.prefixes = checkpoint.prefixes
        return encoder


def _start(candidate: Candidate) -> "Encoder":
    """The encoder of a trial without training: its unchanged base model."""
    from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
    from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
    from tune_sentcl.model.encoder import load_encoder

    row = candidate.row
    checkpoint = resolve_checkpoint(row["encoder.checkpoint"])
    if checkpoint.fingerprint != row["checkpoint_fingerprint"]:
        print_ = row["checkpoint_fingerprint"]
        rule = f"the files have changed since trial {candidate.trial_id} read them ({print_})"
        value = f"{checkpoint.name} ({checkpoint.fingerprint})"
        raise CheckpointError(
            Fault("encoder.checkpoint", value=value, rule=rule, move="Restore the files.")
        )
    encoder = load_encoder(checkpoint, row["encoder.pooling"], row["encoder.max_length"])
    # A row from a release without these hyperparameters has no prefixes.
    encoder.prefixes = Prefixes(
        row["encoder.query_prefix"] or "", row["encoder.text_prefix"] or ""
    )
    return encoder


_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SCORE = ("task", "split", "metric", "protocol", "data", "n")
_Scores = Sequence[Mapping[str, Any]]


def _card(record: Record, *, width: int, pooling: str, max_length: int) -> str:
    """Render the model card as Markdown, with the facts of the model."""
    from huggingface_hub import ModelCardData

    config = record["trial"]["config"]
    start, method = config["encoder"]["checkpoint"], config["method"]
    quantization = method.get("quantization", "none")
    is_cut = method["name"] == "none" and bool(method.get("dims"))
    head = ModelCardData(
        base_model=start if _HUB.fullmatch(start) and not Path(start).exists() else None,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "tune-sentcl"],
    )
    text = _page(
        "card.md.jinja",
        {**record, "width": width, "pooling": pooling, "max_length": max_length},
        start=start,
        method=_method(method),
        is_cut=is_cut,
        quantization=quantization,
        by_test=parse_objectives([record["objective"]], allow_test=True)[0].split == "test",
        rows=list(_rows(record["scores"], record["untrained"])),
        settings="\n".join(f"{k} = {as_toml(v)}" for k, v in flatten(config) if v is not None),
        study=STUDY,
        root=ROOT,
    )
    return f"---\n{head.to_yaml()}\n---\n\n{text}\n"


def _page(name: str, record: Record, **more: Any) -> str:
    """Render a Markdown page from a template, without HTML escapes, which would show."""
    from jinja2 import Environment

    pages = Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    pages.filters |= {"line": _line, "number": _number}
    text = Path(__file__).with_name(name).read_text("utf-8")
    return pages.from_string(text).render(record, **more)


def _line(name: object) -> str:
    """A name on one line, without characters that would end its Markdown."""
    return " ".join(str(name).replace("`", "'").replace("|", "/").split())


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _method(method: Mapping[str, Any]) -> str:
    if method["name"] != "none":
        return f"method `{method['name']}`"
    return f"{UNTRAINED}, whitened" if method["whitening"] else UNTRAINED


def _rows(scores: _Scores, untrained: _Scores) -> Iterator[list[Any]]:
    """Rows of a table: every score of a whole task, beside the untrained encoder's score."""
    groups, before = _by_kind(scores), _by_kind(untrained)
    yield [*_SCORE, *(["untrained"] if before else []), "value"]
    for kind, score in groups.items():
        yield [*kind, *([before.get(kind, "")] if before else []), score]


def _by_kind(scores: _Scores) -> dict[tuple[Any, ...], str]:
    """The scores of whole tasks by kind, as text; the mean over a classifier's seeds."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for score in scores:
        whole = score["subset"] is None and score["aggregation"] in (None, "all")
        if whole and score["value"] is not None:
            # A trainer's evaluator does not say which data it reads, so `data` and `n` stay empty.
            shown = score if score["n"] else {**score, "data": "", "n": ""}
            groups.setdefault(tuple(shown[name] for name in _SCORE), []).append(score["value"])
    return {kind: _mean(values) for kind, values in groups.items()}


def _mean(values: Sequence[float]) -> str:
    spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"
