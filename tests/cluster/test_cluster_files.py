"""What the files of `cluster/` promise: they fit the versions, ask for tokens, name machines."""

import copy
import functools
import importlib.metadata
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from cluster_folder import FILES, FOLDER, LAUNCHED, ROOT, kubernetes, launched, normal, pins
from local_user import LocalUser
from packaging.requirements import Requirement

from tune_sentcl.config import knobs
from tune_sentcl.on_ray.environment import prepare_ray

prepare_ray()

import ray.autoscaler  # noqa: E402 - its settings come first
from ray.autoscaler._private.util import prepare_config, validate_config  # noqa: E402

SCHEMAS = ROOT.parent / "shared" / "schemas"
SCRIPTS = [path for path in FILES if path.read_bytes().startswith(b"#!")]
IMAGE = re.compile(r"registry\.example\.com/tune-sentcl:ray-([\d.]+)")


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(FOLDER)) for path in paths]


def test_the_folder_holds_what_its_page_tells_of() -> None:
    page = (FOLDER / "README.md").read_text()
    assert all(name in page for name in names(FILES) if name != "README.md")


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_machines_and_images_only(path: Path) -> None:
    text = path.read_text()
    assert "--set" not in text
    assert [knob for knob in knobs() if re.search(rf"\b{re.escape(knob)}\b", text)] == []


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_no_token_stands_in_a_file_or_a_command(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\b[0-9a-f]{32,}\b", text)
    assert not re.search(r"RAY_AUTH_TOKEN=\S|--token", text)


def test_the_image_and_ray_are_those_that_were_tested() -> None:
    found = {version for path in FILES for version in IMAGE.findall(path.read_text())}
    assert found == {pins()["ray"]}
    assert kubernetes("raycluster")["RayCluster"]["spec"]["rayVersion"] == pins()["ray"]


# `ray up`


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """A cluster file after what `ray up` does to it before it starts a machine."""
    schema = json.loads((Path(ray.autoscaler.__path__[0]) / "ray-schema.json").read_text())
    jsonschema.validate(config, schema)
    prepared: dict[str, Any] = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    return prepared


@pytest.mark.parametrize("name", LAUNCHED)
def test_ray_up_takes_the_file(name: str) -> None:
    prepared = checked(launched(name))
    assert prepared["docker"]["image"] and prepared["docker"]["container_name"]


@pytest.mark.parametrize("name", LAUNCHED)
def test_trap_a_misspelt_key_would_be_refused(name: str) -> None:
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
    joins = [line for line in config["worker_start_ray_commands"] if "ray start" in line]
    assert all("--address=$RAY_HEAD_IP:6379" in line for line in joins) and len(joins) == 1


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_nothing_but_the_head_is_up_while_nobody_asks(name: str) -> None:
    config = launched(name)
    types = dict(config["available_node_types"])
    head = types.pop(config["head_node_type"])
    assert head["resources"] == {"CPU": 0, "GPU": 0}
    assert "spot" not in json.dumps(head).lower()
    assert config["idle_timeout_minutes"] > 0
    for key, worker in types.items():
        assert worker["min_workers"] == 0 < worker["max_workers"] <= config["max_workers"]
        assert worker["labels"]["ray.io/market-type"] == "spot"
        assert worker["labels"]["ray.io/accelerator-type"].lower() == key.split("-")[0]
        market = worker["node_config"].get("InstanceMarketOptions", {}).get("MarketType")
        model = worker["node_config"].get("scheduling", {}).get("provisioningModel", market)
        assert model.lower() == "spot"
    notice = [line for line in config["worker_start_ray_commands"] if "spot-notice" in line]
    assert [line.split()[2] for line in notice] == [name]


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_accelerators_bear_the_names_that_ray_knows(name: str) -> None:
    from ray.util.accelerators import accelerators

    known = {value for key, value in vars(accelerators).items() if key.startswith("NVIDIA_")}
    types = launched(name)["available_node_types"].values()
    labels = {kind["labels"]["ray.io/accelerator-type"] for kind in types if "labels" in kind}
    assert labels and labels <= known


# KubeRay


def closed(schema: Any) -> Any:
    """A schema of Kubernetes in which a field that it does not name is a fault."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: closed(value) for name, value in item.items()}
        if key == "properties"
        else closed(item)
        for key, item in schema.items()
    }
    if "properties" in found and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


@functools.cache
def crd(kind: str) -> jsonschema.Draft202012Validator:
    path = SCHEMAS / f"ray.io_{kind.lower()}s.yaml"
    if not path.is_file():
        pytest.skip(f"no schemas of KubeRay beside the checkout ({path})")
    versions = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    (version,) = [found for found in versions if found["name"] == "v1"]
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


def test_trap_kuberay_would_refuse_what_it_does_not_know() -> None:
    document = kubernetes("raycluster")["RayCluster"]
    pod = document["spec"]["headGroupSpec"]["template"]["spec"]
    document["spec"]["authOptions"]["mode"] = "k8s"
    pod["containers"][0]["volumeMount"] = []
    pod["restartPolicy"] = 1
    assert len(list(crd("RayCluster").iter_errors(document))) == 3


def test_a_job_is_repeated_on_the_cluster_of_the_other_file() -> None:
    job = kubernetes("rayjob")["RayJob"]["spec"]
    assert job["rayClusterSpec"] == kubernetes("raycluster")["RayCluster"]["spec"]
    assert job["backoffLimit"] > 0 and job["activeDeadlineSeconds"] > 0
    assert job["shutdownAfterJobFinishes"] and job["ttlSecondsAfterFinished"] > 0
    assert job["entrypoint"].startswith("tune-sentcl search ")


def test_pods_are_safe_and_scale_to_zero() -> None:
    spec = kubernetes("raycluster")["RayCluster"]["spec"]
    assert spec["authOptions"] == {"mode": "token"} and spec["enableInTreeAutoscaling"]
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (workers,) = spec["workerGroupSpecs"]
    assert workers["minReplicas"] == workers["replicas"] == 0 < workers["maxReplicas"]
    for group in (spec["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"]
        (container,) = pod["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        waits = {"name": "RAY_gcs_rpc_server_reconnect_timeout_s", "value": "600"}
        assert waits in container["env"]
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}
    claim = kubernetes("raycluster")["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    volumes = workers["template"]["spec"]["volumes"]
    used = [volume.get("persistentVolumeClaim") for volume in volumes]
    assert {"claimName": claim["metadata"]["name"]} in used


# The image


def instructions() -> list[tuple[str, str]]:
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(first, rest) for first, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_is_made_of_what_is_there() -> None:
    copied = [rest.split() for first, rest in instructions() if first == "COPY"]
    sources = [
        word
        for words in copied
        if not any(word.startswith("--from=") for word in words)
        for word in words[:-1]
        if not word.startswith("--")
    ]
    assert sources and all((ROOT / source).exists() for source in sources)
    stages = [rest for first, rest in instructions() if first == "FROM"]
    assert all(stage.startswith("${BASE}") for stage in stages)
    assert ("ARG", "BASE=python:3.11-slim-bookworm") in instructions()


def test_the_image_runs_as_a_user_and_holds_no_secret() -> None:
    asked = instructions()
    last = max(index for index, (first, _) in enumerate(asked) if first == "FROM")
    assert ("USER", "ray") in asked[last:]
    assert not {first for first, _ in asked} & {"ADD", "VOLUME", "EXPOSE"}
    named = " ".join(rest for first, rest in asked if first in {"ARG", "ENV"})
    assert not re.search("TOKEN|SECRET|PASSWORD|KEY", named)
    assert "PIP_NO_CACHE_DIR=1" in named


def test_everything_in_the_image_is_pinned() -> None:
    (install,) = [rest for _, rest in instructions() if '".[' in rest]
    assert "--constraint constraints.txt" in install
    extras = re.findall(r"\.\[([a-z,]+)\]", install)[0].split(",")
    needed = set(requirements("tune-sentcl", extras))
    assert {"ray", "torch", "aiohttp"} <= needed
    assert needed - pins().keys() == set()


def requirements(top: str, extras: list[str]) -> Iterator[str]:
    """The name of every distribution that an installation brings."""
    waiting, seen = [(top, frozenset(extras))], set()
    while waiting:
        name, wanted = waiting.pop()
        lines = own_lines() if name == top else importlib.metadata.requires(name) or []
        for requirement in map(Requirement, lines):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": e}) for e in ("", *wanted)):
                continue
            found = (normal(requirement.name), frozenset(requirement.extras))
            if found not in seen:
                seen.add(found)
                waiting.append(found)
                yield found[0]


def own_lines() -> list[str]:
    """What this checkout asks for; the installed package may be of another day."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra, more in project["optional-dependencies"].items():
        lines += [f'{line}; extra == "{extra}"' for line in more]
    return lines


# Scripts


@pytest.mark.parametrize("path", SCRIPTS, ids=names(SCRIPTS))
def test_a_script_can_be_read_and_run(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert "set -euo pipefail" in path.read_text()
    assert path.suffix == ".sbatch" or path.stat().st_mode & 0o111


@pytest.mark.parametrize("path", SCRIPTS, ids=names(SCRIPTS))
def test_a_script_ends_no_ray_but_its_own(path: Path) -> None:
    assert not re.search(r"ray stop|pkill|killall", path.read_text())


def test_a_ray_without_its_job_server_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise ImportError\n")
    user = LocalUser(tmp_path)
    user.environment["PYTHONPATH"] = str(tmp_path)
    said = user.script("start", code=1)
    assert said.splitlines() == [
        "local-cluster: this Ray lacks its dashboard and job server: "
        "pip install 'tune-sentcl[cluster]'"
    ]


def test_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (FOLDER / "README.md").read_text()):
        assert (FOLDER / target).exists(), target
