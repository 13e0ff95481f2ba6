"""What is known of a cluster before a search begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tune_sentcl.launch.slots import Node


@dataclass(frozen=True)
class NodeFacts:
    """What is known of a node.

    Attributes:
        name: Its host, with a part of its id where several nodes share one.
        address: Under which others reach it.
        node: What it has for trials.
        silent: Why it has not answered; empty where it has, and all below is known.
        versions: Of Python and packages, empty where one is missing.
        checkpoints: Whether each can be read there, and its fingerprint or why not.
        reach: Why the study's place is another one there; empty where it is the driver's.
        gpu_bytes: Memory of each GPU.
        cuda: The version of CUDA that its torch was built for; empty: none, or not asked.
        devices: How many GPUs its torch sees; None: not asked, or not known.
        memory_bytes: Its memory.
        token: Whether its Ray asks for a token.
    """

    name: str
    address: str
    node: Node
    silent: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    reach: str = ""
    gpu_bytes: Sequence[int] = ()
    cuda: str = ""
    devices: int | None = None
    memory_bytes: int = 0
    token: bool = False


@dataclass(frozen=True)
class Kind:
    """Nodes that an autoscaler may start.

    Attributes:
        name: In its config.
        node: What each has for trials.
        most: How many.
    """

    name: str
    node: Node
    most: int


@dataclass(frozen=True)
class ClusterFacts:
    """What is known of a cluster.

    Attributes:
        nodes: Those that are up.
        kinds: Those that may be started; None where an autoscaler may run that does not say.
        dashboard: The address of its dashboard; empty where there is none.
    """

    nodes: Sequence[NodeFacts]
    kinds: Sequence[Kind] | None = ()
    dashboard: str = ""


@dataclass(frozen=True)
class Expected:
    """What a search needs of every node.

    Attributes:
        study: Where it keeps its files, as messages name it.
        versions: Of Python and packages, as the driver has them.
        checkpoints: Fingerprints of the encoders that it starts from, by name.
        host_bytes: Of a node's memory the most that a finished trial has taken; 0: not known.
        gpu_bytes: Of a GPU's memory, likewise.
    """

    study: str
    versions: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    host_bytes: int = 0
    gpu_bytes: int = 0
