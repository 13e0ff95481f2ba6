"""The folder `cluster/`, as its tests read it."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
LAUNCHED = ("aws", "gcp", "on-prem")  # by `ray up`


def pins() -> dict[str, str]:
    """The pinned version of each package of constraints.txt, by its normal name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = (line.split("==") for line in lines if "==" in line)
    return {normal(name): version for name, version in found}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def launched(name: str) -> dict[str, Any]:
    """A cluster file of `ray up`."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found


def kubernetes(name: str, *, with_optional: bool = False) -> dict[str, dict[str, Any]]:
    """The documents of a Kubernetes file by their kind, what is commented out as optional too."""
    text = (FOLDER / "kuberay" / f"{name}.yaml").read_text()
    if with_optional:
        text = text.replace("# optional: ", "")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}
