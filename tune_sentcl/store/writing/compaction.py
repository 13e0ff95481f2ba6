"""Merging of trial files into segments and compacted files, which are faster to read."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.parts import (
    Part,
    conform,
    open_part,
    rows_of_trials,
    rows_without_trials,
    widened,
)
from tune_sentcl.store.reading.study import EndedTrial
from tune_sentcl.store.reading.study_tables import effective_labels
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.segments import (
    EffectiveFiles,
    Listing,
    compacted_stem,
    epoch_of,
    file_of,
    label_key,
    trial_stem,
    with_listed_trials,
)

TRIALS_PER_SEGMENT = 256
"""Trials per segment and per row group."""


Rewrite = Callable[[pa.Table], pa.Table]
"""Changes columns of some rows of a table."""

# `trials` last, so that a compacted row never names scores or curves that are not yet compacted.
_ORDER = ("curves", "scores", "trials")


@dataclass(frozen=True)
class Compactor:
    """Merges the files of a study.

    Attributes:
        files: The study.
        ended: Every trial that has a row; the files of other trials are kept.
        epoch: The driver's epoch.
        running: Trials whose scores and curves a worker may be writing; these files are kept.
        recent: Rows of trials in memory, so that their files need not be read again.
        rewrites: Changes of rows by table, applied during compaction.
    """

    files: StudyFiles
    ended: Mapping[str, EndedTrial]
    epoch: int
    running: Collection[str] = ()
    recent: Mapping[str, pa.Table] = field(default_factory=dict)
    rewrites: Mapping[str, Rewrite] = field(default_factory=dict)

    def into_segment(self) -> None:
        """Merge the trial files of each table into a new segment; no error loses rows."""
        for folder in _ORDER:
            listing = self._listing(folder)
            files = self._trial_files(folder, listing)
            if files.labels:
                segment = listing.next_segment(self.epoch)
                table = self._trials_table(folder, files.labels)
                schema = with_listed_trials(table.schema, files.labels)
                self.files.write_table(
                    file_of(folder, segment),
                    table.replace_schema_metadata(schema.metadata),
                    new=True,
                )
            self.files.delete_all(folder, [f"{stem}.parquet" for stem in files.deletable])

    def into_one_file(self) -> None:
        """Compact each table into one file, with one row group in memory; no error loses rows."""
        for folder in _ORDER:
            listing = self._listing(folder)
            files = self._trial_files(folder, listing)
            older = [stem for stem in listing.shared if stem != compacted_stem(self.epoch)]
            if files.labels or listing.is_fragmented or self._changes(folder, listing):
                self._write_compacted(folder, listing, files.labels)
                # Lowest first, so that after a crash the newest rows of a trial remain.
                for stem in older:
                    self.files.delete(file_of(folder, stem))
            self.files.delete_all(folder, [f"{stem}.parquet" for stem in files.deletable])

    def _listing(self, folder: str) -> Listing:
        listing = Listing.of(self.files, folder)
        names = [
            *listing.shared,
            *(trial_stem(t, n[-1]) for t, n in listing.labels.items() if n[-1]),
        ]
        if any(epoch_of(stem) > self.epoch for stem in names):
            rule = "another driver has taken over and written here"
            move = "Leave the study to it; the rows that this driver committed are kept."
            raise StudyError(Fault(self.files.display_path(folder), "", "", rule, move))
        return listing

    def _trial_files(self, folder: str, listing: Listing) -> "_TrialFileSet":
        # Workers write scores and curves; only the driver writes rows.
        busy = self.running if folder != "trials" else ()
        ended_trials = {t: labels for t, labels in listing.labels.items() if t in self.ended}
        ended_trials = {t: labels for t, labels in ended_trials.items() if t not in busy}
        attempts = {trial_id: self.ended[trial_id].attempt_files for trial_id in ended_trials}
        effective: Mapping[str, str] = effective_labels(
            folder, Listing(ended_trials, {}), attempts
        )
        if folder == "trials":
            effective = self._highest(effective, listing)
        deletable = [
            trial_stem(t, label) for t, labels in ended_trials.items() for label in labels
        ]
        return _TrialFileSet(effective, deletable)

    def _highest(self, labels: Mapping[str, str], listing: Listing) -> Mapping[str, str]:
        """Drop trial files whose rows another driver has replaced in a shared file."""
        if all(label_key(label)[0] >= self.epoch for label in labels.values()):
            return labels
        return EffectiveFiles.of(
            labels, _listed_trials(self._shared_parts("trials", listing)), ranked=True
        ).labels

    def _shared_parts(self, folder: str, listing: Listing) -> dict[str, Part]:
        found = {}
        for stem in listing.shared:
            with open_part(self.files, folder, stem) as part:
                found[stem] = part
        return found

    def _trials_table(self, folder: str, labels: Mapping[str, str]) -> pa.Table:
        effective = {t: label for t, label in labels.items() if self._is_effective(folder, t)}
        recent = self.recent if folder == "trials" else {}
        tables = [TABLES[folder].empty_table()]
        for trial_id, label in effective.items():
            if trial_id in recent:
                tables.append(recent[trial_id])
            else:
                with open_part(self.files, folder, trial_stem(trial_id, label)) as part:
                    tables += part.tables()
        joined = pa.concat_tables(tables, promote_options="default").combine_chunks()
        return joined.replace_schema_metadata(TABLES[folder].metadata)

    def _is_effective(self, folder: str, trial_id: str) -> bool:
        """Whether a table keeps a trial's rows; `scores` keeps those of finished trials only."""
        return folder != "scores" or self.ended[trial_id].status == "finished"

    def _write_compacted(self, folder: str, listing: Listing, labels: Mapping[str, str]) -> None:
        rewrite = self.rewrites.get(folder, _unchanged)
        schema = TABLES[folder]
        shared = self._shared_parts(folder, listing)
        for part in shared.values():
            schema = widened(schema, part.schema)
        for named in labels.items():
            with open_part(self.files, folder, trial_stem(*named)) as part:
                schema = widened(schema, part.schema)
        effective = EffectiveFiles.of(labels, _listed_trials(shared), ranked=folder == "trials")
        stem = compacted_stem(self.epoch)
        tables = self._row_groups(folder, effective)
        rewritten = (conform(rewrite(conform(table, schema)), schema) for table in tables)
        with (
            self.files.writing(file_of(folder, stem), new=stem not in listing.shared) as file,
            pq.ParquetWriter(file, schema, compression="zstd") as out,
        ):
            for group in _concatenated(rewritten):
                out.write_table(group)

    def _changes(self, folder: str, listing: Listing) -> bool:
        """Whether the rewrite of a compacted table changes any row."""
        if folder not in self.rewrites:
            return False
        hidden = {stem: frozenset[str]() for stem in listing.shared}
        return any(
            not self.rewrites[folder](table).equals(table)
            for table in self._row_groups(folder, EffectiveFiles({}, hidden))
        )

    def _row_groups(self, folder: str, effective: EffectiveFiles) -> Iterator[pa.Table]:
        named = [name for name in self.ended if self._is_effective(folder, name)]
        for stem, left_out in reversed(list(effective.hidden_trials.items())):  # lowest first
            if left_out is None:
                continue
            with open_part(self.files, folder, stem) as part:
                for table in part.tables():
                    yield rows_without_trials(rows_of_trials(table, named), left_out)
        labels = list(effective.labels.items())
        for start in range(0, len(labels), TRIALS_PER_SEGMENT):
            yield self._trials_table(folder, dict(labels[start : start + TRIALS_PER_SEGMENT]))


@dataclass(frozen=True)
class _TrialFileSet:
    """The labels of effective trial files by trial, and the names of all that can be deleted."""

    labels: Mapping[str, str]
    deletable: Collection[str]


def _listed_trials(parts: Mapping[str, Part]) -> dict[str, frozenset[str]]:
    return {stem: part.listed_trials for stem, part in parts.items()}


def _concatenated(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate tables until they have `TRIALS_PER_SEGMENT` trials, for one row group each."""
    group: list[pa.Table] = []
    trials = 0
    for table in tables:
        group.append(table)
        trials += pc.count_distinct(table["trial_id"]).as_py()
        if trials >= TRIALS_PER_SEGMENT:
            yield pa.concat_tables(group)
            group, trials = [], 0
    if group:
        yield pa.concat_tables(group)


def _unchanged(table: pa.Table) -> pa.Table:
    return table
