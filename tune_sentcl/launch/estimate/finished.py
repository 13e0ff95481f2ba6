"""What finished trials of each kind took, as a study tells it."""

import json
import socket
from collections import defaultdict
from collections.abc import Mapping

import pyarrow.compute as pc

from tune_sentcl.config import Fingerprints, flatten
from tune_sentcl.launch.estimate.kinds import Kind, kind_of
from tune_sentcl.store.study import Study

_NEWEST = 500
_ROUNDING = 1e-6
_COLUMNS = (
    "status",
    "config",
    "data_fingerprint",
    "checkpoint_fingerprint",
    "started_at",
    "wall_seconds",
    "startup_seconds",
    "train_seconds",
    "evaluation_seconds",
    "encoding_seconds",
    "device",
    "host",
    "cpus",
)


def finished_seconds(study: Study, device: str, cpus: int) -> Mapping[Kind, list[float]]:
    """Read the seconds of finished trials that ran on this machine, by kind.

    A frozen encoder's pass is left out: it is made once, whoever makes it. So are trials that were
    measured again later, whose seconds are those of both times.

    Args:
        study: The study.
        device: `cpu` or `cuda`; what ran on the other says nothing.
        cpus: Cores a trial, likewise.

    Returns:
        Of the newest trials alone, so that a long study costs no more than a short one.

    Raises:
        StudyError: A file is damaged, or the disk refused.
    """
    table = study.trials(_COLUMNS)
    here = pc.starts_with(table["device"], device)
    for name, value in (("status", "finished"), ("host", socket.gethostname()), ("cpus", cpus)):
        here = pc.and_(here, pc.equal(table[name], value))
    parts = pc.add(table["train_seconds"], table["evaluation_seconds"])
    parts = pc.add(parts, pc.fill_null(table["startup_seconds"], 0.0))
    again = pc.subtract(table["wall_seconds"], parts)
    rows = table.filter(pc.and_(here, pc.less(pc.abs(again), _ROUNDING)))
    newest = rows.sort_by([("started_at", "descending")]).slice(0, _NEWEST)
    found: dict[Kind, list[float]] = defaultdict(list)
    for row in newest.to_pylist():
        prints = Fingerprints(row["data_fingerprint"] or "", row["checkpoint_fingerprint"] or "")
        kind = kind_of(dict(flatten(json.loads(row["config"]))), prints)
        found[kind].append(row["wall_seconds"] - (row["encoding_seconds"] or 0.0))
    return found
