"""Several studies brought together in a new one, which is there whole or not at all.

The sources are read, as anybody reads them, and never written. On a disk the new study is made
under a temporary name beside its place and gets its own in the end; on an object store, where
nothing can be renamed, `study.json` comes last, without which there is no study.
"""

import functools
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.checkpoints import checkpoints_of
from tune_sentcl.store.disk import whole_folder
from tune_sentcl.store.faults import disk_faults
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.gathering import GATHERED, RowGroups
from tune_sentcl.store.manifest import MANIFEST, Manifest, now
from tune_sentcl.store.provenance import (
    git_commit,
    library_versions,
    mask_command,
    mask_text,
)
from tune_sentcl.store.schema import SCHEMA_VERSION, TABLES
from tune_sentcl.store.segments import compacted, file_of
from tune_sentcl.store.snapshot import Snapshot
from tune_sentcl.store.study import Study
from tune_sentcl.store.union import Union, unite

_LISTED = 10
_JOINED = " + "
_EPOCH = 1  # as if one driver had written it


@dataclass(frozen=True)
class Merged:
    """What became of one source.

    Attributes:
        study: As it was named.
        space: Its space.
        trials: Its trials.
        counted: Of those, the trials whose row is the source's.
        weights: The trials whose weights were taken from it.
    """

    study: str
    space: str
    trials: int
    counted: int
    weights: int


def merge(
    paths: Sequence[str | Path], to: str | Path, *, command: Sequence[str], weights: bool = True
) -> list[Merged]:
    """Bring studies together; see `union` for what counts of a trial that several have.

    Scores, curves and kept weights come along, each trial's from the study whose
    row counts, weights else from the first that has them; what running trials have left
    does not, and neither does `optuna.journal`, which the next search writes anew. The result is
    compacted and of the present schema, whatever the sources are.

    Args:
        paths: Two studies or more, running or finished.
        to: A folder or URL where there is nothing yet.
        command: The command line, for `study.json`.
        weights: Whether to copy kept weights.

    Returns:
        What became of each source, in their order.

    Raises:
        StudyError: There are too few, a source is damaged, the place is taken, two finished rows
            of a trial do not agree, scores are of several versions of a task, or the disk refused;
            there is no new study then.
    """
    names = [mask_text(str(path)) for path in paths]
    if len(paths) < 2:
        rule, move = "takes two studies or more", "Name another."
        raise StudyError(Fault("merge", "", ", ".join(names), rule, move))
    target = StudyFiles.at(to)
    sources = [Study.read(path) for path in paths]
    for source in sources:
        _require_apart(source.files, target)
    _require_nothing(target)
    snapshots = [Snapshot.of(source) for source in sources]
    union = unite(snapshots, names)
    if union.disagreements:
        raise StudyError(_first(union.disagreements))
    with _made(target) as files:
        _write_tables(files, union)
        kept = _copy_weights(files, sources, union) if weights else {}
        _manifest([s.manifest for s in sources], command).write(files, new=True)
    return [
        Merged(
            name,
            sources[number].manifest.space,
            trials=len(snapshots[number].tables["trials"]),
            counted=sum(found[0] == number for found in union.places.values()),
            weights=sum(place == number for place in kept.values()),
        )
        for number, name in enumerate(names)
    ]


def _manifest(manifests: Sequence[Manifest], command: Sequence[str]) -> Manifest:
    """That of the new study.

    Of one space it is that space's study, and goes on as such; of several it bears all their
    names, which no space has, so that it is only read. It knows what to rank by where all their
    searches maximized the same.
    """
    spaces = dict.fromkeys(name for m in manifests for name in m.space.split(_JOINED))
    searches = [m.search for m in manifests if m.search is not None]
    search = None
    if len({found.objectives for found in searches}) == 1:
        learned = dict.fromkeys(name for found in searches for name in found.learned_from)
        search = replace(searches[0], learned_from=tuple(learned), rungs=(), failed_again=())
    commands = [text for m in manifests for text in m.commands]
    return Manifest(
        schema=SCHEMA_VERSION,
        space=_JOINED.join(spaces),
        space_texts=tuple(dict.fromkeys(text for m in manifests for text in m.space_texts)),
        created=min(m.created for m in manifests),
        updated=now(),
        versions=dict(library_versions()),
        git_commit=git_commit(),
        commands=tuple(dict.fromkeys([*commands, mask_command(command)])),
        search=search,
        epoch=_EPOCH,
    )


def _first(faults: Sequence[Fault]) -> list[Fault]:
    if len(faults) <= _LISTED:
        return list(faults)
    rule = f"{len(faults) - _LISTED} more do not agree either"
    return [*faults[:_LISTED], Fault("merge", "", "", rule, "Leave one of the studies out.")]


def _require_apart(source: StudyFiles, target: StudyFiles) -> None:
    if source.folder and target.folder:
        one, other = source.folder.resolve(), target.folder.resolve()
        within = other.is_relative_to(one)
    else:
        within = f"{target.where}/".startswith(f"{source.where}/")
    if within:
        rule = f"must not lie in a study that is read ({source.where})"
        raise StudyError(Fault(target.where, "", "", rule, "Choose another place for --to."))


def _require_nothing(target: StudyFiles) -> None:
    with disk_faults(target.where):
        taken = target.place.kind("") or (target.folder and target.folder.is_symlink())
    if taken:
        rule = "must not exist yet"
        move = "Choose another place for --to."
        if not target.folder and not target.exists(MANIFEST):
            move += " What a merging that was ended has left here may be deleted."
        raise StudyError(Fault(target.where, "", "", rule, move))


@contextmanager
def _made(target: StudyFiles) -> Iterator[StudyFiles]:
    """Where to write, which becomes the target when the block ends well."""
    if target.folder is None:
        yield target
        return
    with disk_faults(target.where), whole_folder(target.folder) as scratch:
        files = StudyFiles.at(scratch)
        files.make_folders(*TABLES)
        yield files


def _write_tables(files: StudyFiles, union: Union) -> None:
    for folder, table in union.snapshot.tables.items():
        if folder == "trials":
            # All is in one file a table: no file of an attempt is meant any more.
            place = table.schema.get_field_index("attempt_files")
            none = pa.nulls(len(table), pa.string())
            table = table.set_column(place, table.schema.field(place), none)
        name = file_of(folder, compacted(_EPOCH))
        with files.writing(name, new=True) as file, RowGroups(file, table.schema) as out:
            for part in _stretches(table):
                out.add(part)


def _stretches(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of so many trials as a row group takes, from a table in their order."""
    if not len(table):
        return
    ids = table["trial_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    starts = [0, *((ids[1:] != ids[:-1]).nonzero()[0] + 1)][::GATHERED]
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        yield table.slice(start, end - start)


def _copy_weights(files: StudyFiles, sources: Sequence[Study], union: Union) -> dict[str, int]:
    """Copy each trial's weights from the first study that has finished it and kept them."""
    there = [source.checkpoints() for source in sources]
    status = union.snapshot.trials(["trial_id", "status"]).to_pylist()
    kept = {}
    for name in (row["trial_id"] for row in status if row["status"] == "finished"):
        number = next((n for n in union.places[name] if name in there[n]), None)
        if number is None:
            continue
        with sources[number].checkpoint(name) as folder, disk_faults(str(folder)):
            _refuse_links(folder)
            checkpoints_of(files).write(name, functools.partial(_copy, folder))
        kept[name] = number
    return kept


def _copy(folder: Path, into: Path) -> None:
    shutil.copytree(folder, into, dirs_exist_ok=True)


def _refuse_links(folder: Path) -> None:
    """A study may come from anywhere: a link would bring files of other places along."""
    links = [path for path in (folder, *folder.rglob("*")) if path.is_symlink()]
    if links:
        rule, move = "must be the study's own, and is a link", "Put what it leads to there."
        raise StudyError(Fault(str(links[0]), "", "", rule, move))
