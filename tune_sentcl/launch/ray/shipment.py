"""What is sent to a cluster: one wheel of this package, the space's text, and nothing else.

The wheel is made of the installed package's own files, whichever way it was installed. It names no
dependency, for Ray would let pip fetch them all again on every node; the cluster's image has them.
Its name carries a digest of its content: Ray knows a wheel by its name alone, and would go on with
the one that it has.
"""

import base64
import hashlib
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.space import Space
from tune_sentcl.space.files import spaces_folder

DISTRIBUTION = "tune-sentcl"
SPACE_FILE = "space.toml"
"""What the space is called on the cluster; its name is in its text."""

MOST_BYTES = 20_000_000
_PACKAGE = "tune_sentcl"
# Code, tables and pages. A study or data set that lies in the folder of a checkout stays there.
_KINDS = frozenset([".py", ".typed", ".csv", ".toml", ".md", ".html", ".css", ".js", ".LICENSE"])
_KEPT_METADATA = ("entry_points.txt", "licenses/LICENSE")
_DEPENDENCY = ("Requires-Dist:", "Provides-Extra:")
_LISTED = 5  # files that a refusal names


@dataclass(frozen=True)
class Shipment:
    """Files for a cluster.

    Attributes:
        space: The text of the space.
        package: The package's files by their path in the wheel.
        metadata: The same for the wheel's own folder, without its list of files.
        version: The package's.
    """

    space: str
    package: Mapping[str, bytes]
    metadata: Mapping[str, str]
    version: str

    @classmethod
    def of(cls, space: Space) -> "Shipment":
        """Gather what a search of a space needs.

        Raises:
            ConfigError: It is more than 20 MB, or the package was not installed.
        """
        try:
            installed = importlib.metadata.distribution(DISTRIBUTION)
        except importlib.metadata.PackageNotFoundError:
            rule, move = "must be installed, for its name and version", "Run pip install -e ."
            raise ConfigError(Fault(_PACKAGE, "", "", rule, move)) from None
        files = dict(_package_files())
        _check_size(space, files)
        return cls(
            space.text,
            {name: path.read_bytes() for name, path in sorted(files.items())},
            _metadata(installed),
            installed.version,
        )

    @property
    def files(self) -> dict[str, bytes]:
        """What is sent, by its file name."""
        return {self.wheel_name: self.wheel, SPACE_FILE: self.space.encode()}

    @cached_property
    def wheel_name(self) -> str:
        """The wheel's file name, other for other content by its build tag."""
        digest = hashlib.sha256(self._record(self._contents).encode()).hexdigest()
        return f"{_PACKAGE}-{self.version}-0{digest[:12]}-py3-none-any.whl"

    @cached_property
    def wheel(self) -> bytes:
        """The wheel; the same files make the same bytes."""
        build = self.wheel_name.split("-")[2]
        kind = f"Wheel-Version: 1.0\nGenerator: {_PACKAGE}\nRoot-Is-Purelib: true\n"
        contents = {
            **self._contents,
            f"{self._folder}/WHEEL": f"{kind}Tag: py3-none-any\nBuild: {build}\n".encode(),
        }
        contents[f"{self._folder}/RECORD"] = self._record(contents).encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                entry = zipfile.ZipInfo(name)  # of 1980
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        return buffer.getvalue()

    @property
    def _contents(self) -> dict[str, bytes]:
        told = {f"{self._folder}/{name}": text.encode() for name, text in self.metadata.items()}
        return {**self.package, **told}

    @property
    def _folder(self) -> str:
        return f"{_PACKAGE}-{self.version}.dist-info"

    def _record(self, contents: Mapping[str, bytes]) -> str:
        lines = [f"{n},sha256={_digest(data)},{len(data)}" for n, data in contents.items()]
        return "\n".join([*lines, f"{self._folder}/RECORD,,", ""])


def _package_files() -> Iterator[tuple[str, Path]]:
    package = Path(__file__).parents[2]
    for path in _files_below(package):
        yield f"{_PACKAGE}/{path.relative_to(package).as_posix()}", path
    spaces = spaces_folder()
    for path in _files_below(spaces):
        yield f"{_PACKAGE}/search_spaces/{path.relative_to(spaces).as_posix()}", path


def _files_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        below = PurePosixPath(path.relative_to(folder))
        hidden = any(part.startswith(".") for part in below.parts)
        if path.suffix in _KINDS and not hidden and path.is_file():
            yield path


def _check_size(space: Space, files: Mapping[str, Path]) -> None:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    sizes[space.source] = len(space.text.encode())
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:_LISTED]
        listed = ", ".join(f"{name} ({sizes[name] / 1e6:.1f} MB)" for name in largest)
        rule = f"must be {MOST_BYTES / 1e6:.0f} MB or below; the largest: {listed}"
        move = "Move what is no code out of the package's folder."
        raise ConfigError(Fault("what is sent", "", f"{total / 1e6:.1f} MB", rule, move))


def _metadata(installed: importlib.metadata.Distribution) -> dict[str, str]:
    lines = (installed.read_text("METADATA") or "").splitlines(keepends=True)
    kept = {"METADATA": "".join(line for line in lines if not line.startswith(_DEPENDENCY))}
    for name in _KEPT_METADATA:
        text = installed.read_text(name)
        if text is not None:
            kept[name] = text
    return kept


def _digest(data: bytes) -> str:
    """As RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
