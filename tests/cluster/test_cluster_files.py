"""What the files of `cluster/` promise: they fit the versions, ask for tokens, name machines."""

import copy
import functools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from clusters import FOLDER, ROOT
from packaging.utils import canonicalize_name

from tune_sentcl.config import knobs
from tune_sentcl.on_ray.environment import prepare_ray

prepare_ray()

import ray.autoscaler  # noqa: E402 - its settings come first
from ray.autoscaler._private.util import prepare_config, validate_config  # noqa: E402

FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
LAUNCHED = ("aws", "gcp", "on-prem")  # by `ray up`
SCHEMAS = ROOT.parent / "shared" / "schemas"


def pins() -> dict[str, str]:
    """The pinned version of each package of constraints.txt, by its normal name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_file_is_on_the_page_and_names_no_knob_and_no_token(path: Path) -> None:
    text = path.read_text()
    assert path.name == "README.md" or path.name in (FOLDER / "README.md").read_text()
    assert "--set" not in text
    assert [knob for knob in knobs() if re.search(rf"\b{re.escape(knob)}\b", text)] == []
    assert not re.search(r"\b[0-9a-f]{32,}\b|RAY_AUTH_TOKEN=\S|--token", text)
    if text.startswith("#!"):
        subprocess.run(["bash", "-n", str(path)], check=True)
        assert "set -euo pipefail" in text
        assert path.suffix == ".sbatch" or path.stat().st_mode & 0o111
        assert not re.search(r"ray stop|pkill|killall", text), "it ends no Ray but its own"


def test_the_image_and_ray_are_those_that_were_tested() -> None:
    image = re.compile(r"registry\.example\.com/tune-sentcl:ray-([\d.]+)")
    versions = {version for path in FILES for version in image.findall(path.read_text())}
    assert versions == {pins()["ray"]}
    assert kubernetes("raycluster")["RayCluster"]["spec"]["rayVersion"] == pins()["ray"]


# `ray up`


def launched(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return config


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """A cluster file after what `ray up` does to it before it starts a machine."""
    schema = json.loads((Path(ray.autoscaler.__path__[0]) / "ray-schema.json").read_text())
    jsonschema.validate(config, schema)
    prepared: dict[str, Any] = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    return prepared


@pytest.mark.parametrize("name", LAUNCHED)
def test_ray_up_takes_the_file_and_would_refuse_a_misspelt_key(name: str) -> None:
    prepared = checked(launched(name))
    assert prepared["docker"]["image"] and prepared["docker"]["container_name"]
    with pytest.raises(jsonschema.ValidationError, match="idle_timeout_minuets"):
        checked({**launched(name), "idle_timeout_minuets": 5})


@pytest.mark.parametrize("name", LAUNCHED)
def test_every_node_asks_for_the_token_and_the_dashboard_stays_inside(name: str) -> None:
    config = launched(name)
    assert "--env RAY_AUTH_MODE=token" in config["docker"]["run_options"]
    assert config["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}
    (start,) = [line for line in config["head_start_ray_commands"] if "--head" in line]
    assert {"--num-cpus=0", "--num-gpus=0", "--dashboard-host=127.0.0.1"} <= set(start.split())
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in start
    (join,) = [line for line in config["worker_start_ray_commands"] if "ray start" in line]
    assert "--address=$RAY_HEAD_IP:6379" in join


# KubeRay


def kubernetes(name: str, *, with_optional: bool = False) -> dict[str, dict[str, Any]]:
    """The documents of a Kubernetes file by their kind, what is commented out as optional too."""
    text = (FOLDER / "kuberay" / f"{name}.yaml").read_text()
    if with_optional:
        text = text.replace("# optional: ", "")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def closed(schema: Any) -> Any:
    """A schema of Kubernetes in which a field that it does not name is a fault."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {
        key: {name: closed(value) for name, value in item.items()}
        if key == "properties"
        else closed(item)
        for key, item in schema.items()
    }
    if "properties" in strict and not strict.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict


@functools.cache
def crd(kind: str) -> jsonschema.Draft202012Validator:
    path = SCHEMAS / f"ray.io_{kind.lower()}s.yaml"
    if not path.is_file():
        pytest.skip(f"no schemas of KubeRay beside the checkout ({path})")
    versions = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    (version,) = [one for one in versions if one["name"] == "v1"]
    top = closed(version["schema"]["openAPIV3Schema"])
    top["properties"]["metadata"] = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "additionalProperties": False,
    }
    return jsonschema.Draft202012Validator(top)


@pytest.mark.parametrize("with_optional", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("raycluster", "RayCluster"), ("rayjob", "RayJob")])
def test_kuberay_takes_the_file(name: str, kind: str, with_optional: bool) -> None:
    document = kubernetes(name, with_optional=with_optional)[kind]
    assert document["apiVersion"] == "ray.io/v1"
    assert [error.message for error in crd(kind).iter_errors(document)] == []


# The image
