"""What is sent to a cluster: this package as a wheel, the space's text, and nothing else."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tune_sentcl.errors import ConfigError
from tune_sentcl.launch.ray.job_names import job_id, jobs_name, run_number
from tune_sentcl.launch.ray.pins import pinned
from tune_sentcl.launch.ray.shipment import SPACE_FILE, Shipment
from tune_sentcl.space import load_space

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipment() -> Shipment:
    return Shipment.of(load_space("smoke"))


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel but for those that tell of its making."""
    with zipfile.ZipFile(wheel) as archive:
        told = ("RECORD", "WHEEL", "METADATA")
        return {n: archive.read(n) for n in archive.namelist() if not n.endswith(told)}


def test_two_files_are_sent(shipment: Shipment) -> None:
    assert list(shipment.files) == [shipment.wheel_name, SPACE_FILE]
    assert shipment.files[SPACE_FILE].decode() == load_space("smoke").text
    assert shipment.wheel_name.endswith("-py3-none-any.whl")


def test_the_same_files_make_the_same_wheel_and_others_another(shipment: Shipment) -> None:
    again = Shipment.of(load_space("smoke"))
    assert (again.wheel_name, again.wheel) == (shipment.wheel_name, shipment.wheel)
    changed = {**shipment.package, "tune_sentcl/errors.py": b"# other\n"}
    other = Shipment(shipment.space, changed, shipment.metadata, shipment.version)
    assert other.wheel_name != shipment.wheel_name  # Ray looks at nothing else


def test_the_space_keeps_its_name_on_the_cluster(shipment: Shipment, tmp_path: Path) -> None:
    (tmp_path / SPACE_FILE).write_bytes(shipment.files[SPACE_FILE])
    assert load_space(tmp_path / SPACE_FILE).name == "smoke"


@pytest.mark.slow
def test_the_wheel_is_the_one_that_the_build_makes(shipment: Shipment, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (built,) = tmp_path.glob("*.whl")
    sent = tmp_path / "sent" / shipment.wheel_name
    sent.parent.mkdir()
    sent.write_bytes(shipment.wheel)
    assert contents(sent) == contents(built)


@pytest.mark.slow
def test_pip_installs_the_wheel_without_network_and_dependencies(
    shipment: Shipment, tmp_path: Path
) -> None:
    wheel, site = tmp_path / shipment.wheel_name, tmp_path / "site"
    wheel.write_bytes(shipment.wheel)
    command = [sys.executable, "-m", "pip", "install", str(wheel), f"--target={site}"]
    subprocess.run([*command, "--no-index"], capture_output=True, check=True)
    assert {path.name for path in site.iterdir()} == {
        "tune_sentcl",
        f"tune_sentcl-{shipment.version}.dist-info",
        "bin",
    }
    code = (
        "import importlib.metadata, tune_sentcl; from tune_sentcl.space import load_space; "
        "print(tune_sentcl.__file__, importlib.metadata.version('tune-sentcl'), "
        "len(load_space('smoke').configurations)); "
        "from tune_sentcl.launch.ray.shipment import Shipment; "
        "print(Shipment.of(load_space('smoke')).wheel_name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=site, capture_output=True, text=True, check=True
    )
    # One that was sent can send: from a job, or from a notebook on the cluster.
    expected = f"{site / 'tune_sentcl/__init__.py'} {shipment.version} 2\n{shipment.wheel_name}\n"
    assert done.stdout == expected


def test_what_is_large_is_named(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text(load_space("smoke").text + "#" * 21_000_000)
    with pytest.raises(ConfigError, match=r"20 MB or below.*large\.toml \(21\.0 MB\), "):
        Shipment.of(load_space(path))


def test_dependencies_are_pinned_at_what_is_installed_here() -> None:
    pins = dict(pin.split("==") for pin in pinned())
    assert {"torch", "optuna", "transformers"} <= set(pins)
    assert not {"ray", "pytest", "nltk"} & set(pins)
    assert not any("+" in version for version in pins.values())


@pytest.mark.parametrize(
    "other",
    [
        "/disk/studies/One/",
        "//disk/studies//One",
        "/disk/./x/../studies/One",
        "file:///disk/studies/One",
    ],
)
def test_spellings_of_a_path_are_one_study(other: str) -> None:
    assert jobs_name(other) == jobs_name("/disk/studies/One")


@pytest.mark.parametrize(
    "study",
    [
        "../../etc",
        "/a/../..",
        "/a/$(reboot)",
        "/a/; rm -r ~",
        "/a/b\n--x",
        "s3://b/../c",
        "/..",
        "/é",
    ],
)
def test_a_job_s_name_is_a_plain_word(study: str) -> None:
    assert re.fullmatch(r"tune-sentcl-[a-z0-9-]+-run1", job_id(study, 1))


def test_jobs_are_named_by_their_study() -> None:
    url = "s3://bucket/studies/My study?region=eu&endpoint_override=here"
    assert jobs_name(url).startswith("tune-sentcl-my-study-")
    swapped = "s3://bucket/studies/My study/?endpoint_override=here&region=eu"
    assert jobs_name(url) == jobs_name(swapped)
    assert jobs_name(url) != jobs_name(url.replace("=here", "=there"))
    assert jobs_name("/a/one") != jobs_name("/b/one")
    assert jobs_name("file:///a/my%20one") == jobs_name("/a/my one")
    assert run_number(url, job_id(url, 12)) == 12
    assert run_number(url, job_id("/a/one", 12)) is None
    assert run_number(url, None) is None
    assert jobs_name("s3://bucket") != jobs_name("s3://other")
