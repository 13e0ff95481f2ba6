"""Studies of older schemas, which called trials and scores otherwise: what they are called now.

Schema 1 counted knobs without effect in ids. Schema 2 counted two values that act alike as two,
spelled a method otherwise, and let the folds of TREC and MRPC stay where the classifier's seed
moves them now. A stored id is computed again from the row's config and fingerprints. Where that
is not what the row was named by, as in a copy whose rows were changed by hand, the id stays.
"""

import json
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import (
    Fingerprints,
    configuration_id_of,
    flatten,
    trial_id_of,
    trial_id_v1,
    trial_id_v2,
)
from tune_sentcl.errors import Fault
from tune_sentcl.store.checkpoints import FOLDER, checkpoints_of
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.gathering import Ended, Gathering
from tune_sentcl.store.manifest import RENAMED, present_space
from tune_sentcl.store.rows import masked
from tune_sentcl.store.tables import Query, read_table

_NAMED_BY = (
    "trial_id",
    "status",
    "config",
    "data_fingerprint",
    "checkpoint_fingerprint",
    "selection_fingerprint",
)
_MOVED_TASKS = ("TREC", "MRPC")
_FIXED = 1111
_FOLDS_FIXED = "-folds-1111"
"""What the protocols are called whose folds did not move with the classifier's seed."""

_TEXTS = ("encoder.checkpoint", "data.source", "data_source", "error_text", "notes")


@dataclass(frozen=True)
class Renaming:
    """What the rows of a study of an older schema say under the present rules.

    Attributes:
        trial_ids: New ids by old ones; an id that is not here stays.
        configurations: The configurations of those trials, by new id.
        selections: Fingerprints of what chose their weights, by new id; None where nothing did.
    """

    trial_ids: Mapping[str, str]
    configurations: Mapping[str, str]
    selections: Mapping[str, str | None]

    def of(self, trial_id: str) -> str:
        """What a trial is called now; a new id is its own."""
        return self.trial_ids.get(trial_id, trial_id)

    def ids(self, table: pa.Table) -> pa.Table:
        """A table with the present ids."""
        column = table["trial_id"]
        return _with(table, "trial_id", _looked_up(column, self.trial_ids, column))

    def scores(self, table: pa.Table) -> pa.Table:
        """Rows of the scores table, or some of its columns, as they are written now."""
        table = self.ids(table)
        needed = ("task", "protocol", "classifier_seed")
        if not set(needed) <= set(table.column_names):
            return table
        tasks, protocols, seeds = (table[name] for name in needed)
        fixed = pc.and_(
            pc.is_in(tasks, value_set=pa.array(_MOVED_TASKS)),
            pc.fill_null(pc.not_equal(seeds, _FIXED), fill_value=False),
        )
        fixed = pc.and_(fixed, pc.invert(pc.ends_with(protocols, _FOLDS_FIXED)))
        marked = pc.binary_join_element_wise(protocols, _FOLDS_FIXED, "")
        return _with(table, "protocol", pc.if_else(fixed, marked, protocols))

    def trials(self, table: pa.Table) -> pa.Table:
        """Rows of the trials table, or some of its columns, as they are written now."""
        table = self.ids(table)
        for name, known in (
            ("configuration", self.configurations),
            ("selection_fingerprint", self.selections),
        ):
            if name in table.column_names:
                found = _looked_up(table["trial_id"], known, table[name])
                table = _with(table, name, found)
        if "method.name" in table.column_names:
            names = table["method.name"]
            table = _with(table, "method.name", _looked_up(names, RENAMED, names))
        if "space" in table.column_names:
            spaces = [present_space(name) for name in table["space"].to_pylist()]
            table = _with(table, "space", pa.array(spaces, pa.string()))
        for name in ("config", *_TEXTS):
            if name in table.column_names:
                change = _present_config if name == "config" else masked
                values = [v and change(v) for v in table[name].to_pylist()]
                table = _with(table, name, pa.array(values, pa.string()))
        return table


def renaming(
    files: StudyFiles,
    schema: int,
    selections: Collection[str] = (),
    skipped: MutableMapping[str, Fault] | None = None,
) -> Renaming:
    """Compute the ids of a study of an older schema again.

    Args:
        files: The study; it may be rewritten in part.
        schema: Its schema's number.
        selections: Fingerprints of development sets by which weights may have been chosen, for
            rows of schema 1 do not say.
        skipped: See `Query`.

    Raises:
        StudyError: A file is damaged, or the disk refused.
    """
    named_by = Query(_NAMED_BY, skipped=skipped)
    rows = read_table(files, "trials", named_by).select(_NAMED_BY).to_pylist()
    taken = {row["trial_id"] for row in rows}
    ids, configurations, chosen = {}, {}, {}
    # Two rows can be one trial now. The finished one gets the name, the other one stays.
    for row in sorted(rows, key=lambda row: (row["status"] != "finished", row["trial_id"])):
        named = _named(row, schema, selections)
        if named is None:
            continue
        values, fingerprints = named
        old, new = row["trial_id"], trial_id_of(values, fingerprints)
        if new == old or new not in taken:
            ids[old] = new
            configurations[new] = configuration_id_of(values, fingerprints)
            chosen[new] = fingerprints.selection or None
            taken.add(new)
    return Renaming(ids, configurations, chosen)


def migrate(
    files: StudyFiles, schema: int, selections: Collection[str] = (), epoch: int = 0
) -> None:
    """Rewrite the tables of a study of an older schema, and rename its checkpoints.

    May be killed anywhere and begun again: old ids are looked up in the trials table, which
    changes last and in one renaming. `study.json` is the caller's, afterwards.

    Args:
        files: The study.
        schema: Its schema's number.
        selections: See `renaming`.
        epoch: The driver's.

    Raises:
        StudyError: A file is damaged, or the disk refused; nothing is lost.
    """
    names = renaming(files, schema, selections)
    table = read_table(files, "trials", Query(["trial_id", "status"]))
    rows = zip(*(table[name].to_pylist() for name in ("trial_id", "status")), strict=True)
    old = {trial_id: Ended(status) for trial_id, status in rows}
    # Tables that were rewritten before a kill speak of new ids already.
    ended = {**old, **{names.of(trial_id): known for trial_id, known in old.items()}}
    Gathering(files, ended, epoch).into_one()
    for trial_id in ended.keys() & set(files.names(FOLDER)):
        checkpoints_of(files).rename(trial_id, names.of(trial_id))
    rewrites = {"curves": names.ids, "scores": names.scores, "trials": names.trials}
    Gathering(files, ended, epoch, rewrites=rewrites).into_one()


def _named(
    row: Mapping[str, Any], schema: int, selections: Collection[str]
) -> tuple[dict[str, Any], Fingerprints] | None:
    """The present values of a row that its schema's rule named so, and what they were named by."""
    data, checkpoint = row["data_fingerprint"], row["checkpoint_fingerprint"]
    if None in (row["config"], data, checkpoint):
        return None
    stored = dict(flatten(json.loads(row["config"])))
    method = stored["method.name"]
    values = {**stored, "method.name": RENAMED.get(method, method)}
    if schema > 1:
        rule, selections = trial_id_v2, (row["selection_fingerprint"] or "",)
    else:
        rule, selections = trial_id_v1, ("", *selections)
    for selection in selections:
        fingerprints = Fingerprints(data, checkpoint, selection)
        if rule(stored, fingerprints, values["method.name"]) == row["trial_id"]:
            return values, fingerprints
    return None


def _present_config(text: str) -> str:
    config = json.loads(text)
    name = config["method"]["name"]
    config["method"]["name"] = RENAMED.get(name, name)
    return json.dumps(masked(config), ensure_ascii=False, separators=(",", ":"))


def _looked_up(
    keys: pa.ChunkedArray, known: Mapping[str, str | None], otherwise: pa.ChunkedArray
) -> pa.ChunkedArray:
    """What a mapping has for each key, else what stands."""
    places = pc.index_in(keys, value_set=pa.array(list(known), pa.string()))
    values = pa.array(list(known.values()), pa.string()).take(places.combine_chunks())
    return pc.if_else(places.is_valid(), pa.chunked_array([values]), otherwise)


def _with(table: pa.Table, name: str, column: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), column)
