"""One file a table for a finished study, and what that asks of those who write to it later.

A whole new `all.parquet` takes the old one's place before any trial's own file goes, so that a
kill at any point loses nothing. It may leave rows that stand in both; the next driver settles
that.
"""

from collections.abc import Collection

import pyarrow as pa

from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.tables import COMPACTED, conform, file_of, read_folder, without


def compacted_statuses(files: StudyFiles) -> dict[str, str]:
    """The status of each trial whose row lies in the compacted file."""
    name = file_of("trials", COMPACTED)
    if not files.exists(name):
        return {}
    table = files.read_table(name, ["trial_id", "status"])
    return dict(zip(table["trial_id"].to_pylist(), table["status"].to_pylist(), strict=True))


def compact(files: StudyFiles) -> None:
    """Bring every committed trial's rows into one file a table.

    Files of trials without a row stay: their trial may be about to be committed.

    Raises:
        StudyError: A file is damaged, or the disk refused; nothing is lost.
    """
    trials = read_folder(files, "trials")
    committed = set(trials["trial_id"].to_pylist())
    for folder in ("curves", "scores", "trials"):
        own = committed.intersection(files.stems(folder))
        if own:
            table = trials if folder == "trials" else read_folder(files, folder, committed)
            files.write_table(file_of(folder, COMPACTED), table)
            for trial_id in sorted(own):
                files.delete(file_of(folder, trial_id))


def settle(files: StudyFiles) -> None:
    """Drop from compacted files what trials' own files hold too."""
    for folder in TABLES:
        own = set(files.stems(folder)) - {COMPACTED}
        if own:
            drop(files, folder, own)


def drop(files: StudyFiles, folder: str, trial_ids: Collection[str]) -> None:
    """Rewrite a compacted file without these trials; does nothing where it holds none of them."""
    name = file_of(folder, COMPACTED)
    if not files.exists(name):
        return
    held = set(files.read_table(name, ["trial_id"])["trial_id"].to_pylist())
    if held.isdisjoint(trial_ids):
        return
    rest = without(files.read_table(name), trial_ids)
    if len(rest):
        files.write_table(name, rest)
    else:
        files.delete(name)


def replace(files: StudyFiles, row: pa.Table, *, stale: bool) -> None:
    """Replace one trial's row inside the compacted file, so that no reader ever sees two.

    Args:
        files: The study.
        row: The new row.
        stale: Whether the compacted scores and curves are of an attempt that failed; else they
            give way only to the trial's own new files.
    """
    trial_id = row["trial_id"][0].as_py()
    for folder in ("scores", "curves"):
        if stale or files.exists(file_of(folder, trial_id)):
            drop(files, folder, {trial_id})
    name = file_of("trials", COMPACTED)
    others = without(conform(files.read_table(name), TABLES["trials"]), {trial_id})
    joined = pa.concat_tables([others, row], promote_options="default")
    files.write_table(name, joined.replace_schema_metadata(row.schema.metadata))
