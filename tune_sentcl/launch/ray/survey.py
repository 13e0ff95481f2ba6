"""A cluster looked at for a search, before anything of the search is written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from tune_sentcl.config import CHECKPOINTS
from tune_sentcl.errors import (
    BadInputError,
    CheckpointError,
    ConfigError,
    Fault,
    ResourceError,
    StudyError,
)
from tune_sentcl.launch.prepared import Prepared
from tune_sentcl.launch.ray import preflight
from tune_sentcl.launch.ray.facts import ClusterFacts, Expected
from tune_sentcl.launch.ray.probe import ask_nodes, seen_by_ray
from tune_sentcl.launch.slots import Bundle, Node, bundle_of, to_ask_for
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.space import Space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.study import Study

_HERE = "toy"  # no files: the package is the encoder
_ROOM = 1.1
"""What is reserved of memory for what a trial has taken."""


@dataclass(frozen=True)
class Survey:
    """What a search may count on.

    Attributes:
        cluster: What is known of it.
        trial: What each trial takes of a node.
        faults: Because of which the search cannot be run there.
        warnings: What it can live with.
    """

    cluster: ClusterFacts
    trial: Bundle
    faults: list[Fault]
    warnings: list[str]

    def check(self) -> None:
        """See that the search can be run.

        Raises:
            ResourceError: It cannot; every fault is listed.
        """
        if self.faults:
            raise ResourceError(self.faults)

    def side_by_side(self, nodes: Sequence[Node]) -> int:
        """How many trials the nodes hold that are up by now, and those that may be started."""
        fit = self._fit(nodes)
        if self.cluster.kinds is None:  # it may grow, and nobody says how far
            return 2 * fit
        startable = sum(kind.most * kind.node.slots(self.trial) for kind in self.cluster.kinds)
        return max(fit, startable)

    def at_once(self, nodes: Sequence[Node], running: int, known: int) -> int:
        """How many trials to have under way on the nodes that are up by now.

        Args:
            nodes: Those.
            running: Trials under way.
            known: Trials that are to run and need no draw.
        """
        return to_ask_for(self._fit(nodes), self.side_by_side(nodes), running, known)

    def _fit(self, nodes: Sequence[Node]) -> int:
        return sum(node.slots(self.trial) for node in nodes)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The nodes, and those that may be started, for a table."""
        for fact in self.cluster.nodes:
            yield self._row(fact.name, "up" if not fact.silent else fact.silent, fact.node)
        for kind in self.cluster.kinds or ():
            yield self._row(kind.name, f"up to {kind.most} may be started", kind.node)

    def _row(self, name: str, state: str, node: Node) -> dict[str, Any]:
        return {
            "node": name,
            "state": state,
            "CPU": node.cpus,
            "GPU": node.gpus,
            "GB": round(node.memory / 1e9, 1),
            "accelerator": node.accelerator or "",
            "trials at a time": node.slots(self.trial),
        }


def survey(prepared: Prepared, study: str) -> Survey:
    """Look at the cluster to which this process is connected; nothing is left anywhere.

    The nodes are asked themselves, which takes seconds, but for the one node of a cluster of this
    machine's own.

    Args:
        prepared: The search.
        study: Its study's folder or URL, which need not be there; empty: none is looked at.
    """
    options, space = prepared.options, prepared.space
    cluster = seen_by_ray()
    ask = options.ray_address != "local" or len(cluster.nodes) > 1
    own: list[Fault] = []
    taken = _taken(study) if study and ask else (0, 0)
    checkpoints = _checkpoints(space) if ask else {}
    expected = Expected(
        mask_text(study), preflight.own_versions(space.extras), checkpoints, *taken
    )
    if ask:
        try:
            cluster = ask_nodes(study, checkpoints, expected.versions)
        except StudyError as error:
            own += error.faults
    nodes = [fact.node for fact in cluster.nodes] + [kind.node for kind in cluster.kinds or ()]
    trial = bundle_of(options, nodes)
    if ask and options.memory_per_trial is None:
        trial = _reserved(trial, taken[0], cluster)
    if not ask or own:  # else every node would be named as one that was not asked
        found = [*preflight.unfit(cluster, trial), *own]
        return Survey(cluster, trial, found, [])
    found = preflight.faults(cluster, trial, expected)
    return Survey(cluster, trial, found, list(preflight.warnings(cluster, trial)))


def _reserved(trial: Bundle, taken: int, cluster: ClusterFacts) -> Bundle:
    """Reserve what finished trials have taken, where some node has so much.

    Ray counts what was free when a node started; a trial that fits no such count may fit all the
    same, and is not kept waiting for our guess.
    """
    guessed = replace(trial, memory=round(_ROOM * taken))
    nodes = [fact.node for fact in cluster.nodes]
    return guessed if any(node.slots(guessed) for node in nodes) else trial


def _taken(study: str) -> tuple[int, int]:
    """The most memory of a node, and of a GPU, that the study's finished trials have taken."""
    try:
        if not StudyFiles.at(study).exists(MANIFEST):
            return 0, 0
        table = Study.read(study).trials(["status", "gpus", "peak_memory_bytes"])
    except BadInputError:  # whoever opens it says why
        return 0, 0
    done = table.filter(pc.field("status") == "finished")
    on_gpu = pc.greater(pc.fill_null(done["gpus"], 0.0), 0.0)
    most = [
        pc.max(done.filter(mask)["peak_memory_bytes"]).as_py() or 0
        for mask in (pc.invert(on_gpu), on_gpu)
    ]
    return most[0], most[1]


def _checkpoints(space: Space) -> dict[str, str]:
    """Fingerprints of the encoders that trials may need; what cannot be read is left out."""
    values = [config.dotted() for config in space.configurations]
    names = {value[key] for value in values for key in CHECKPOINTS if key in value}
    for item in space.ranges:
        if item.key in CHECKPOINTS:
            names.update(item.choices)
    found = {}
    for name in sorted(names - {_HERE}):
        try:
            found[name] = resolve_checkpoint(name).fingerprint
        except (CheckpointError, ConfigError):  # the search says so itself
            continue
    return found
