"""Files of arrays that are computed once a machine, and that every process maps.

A file appears whole or not at all. One process at a time writes the files of an identity; others
wait for its lock, which the operating system frees when a process ends. Above TUNE_SENTCL_CACHE_GB
the files not opened for longest are deleted; a process that has mapped one keeps it.
"""

import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from tune_sentcl.errors import Fault, ResourceError, first_line

Arrays = dict[str, NDArray[Any]]
_log = logging.getLogger(__name__)


def cache_root() -> Path:
    """The folder of all files: TUNE_SENTCL_CACHE, else the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("TUNE_SENTCL_CACHE") or f"{home}/tune_sentcl").expanduser()


def _limit() -> float:
    """The bytes that the files may have together: TUNE_SENTCL_CACHE_GB, or 50 GB."""
    stated = os.environ.get("TUNE_SENTCL_CACHE_GB") or "50"
    try:
        if (gigabytes := float(stated)) >= 0:
            return 1e9 * gigabytes
    except ValueError:
        pass
    rule, move = "must be a number of gigabytes, 0 or above", "Correct it, or unset it."
    raise ResourceError(Fault("cache", "TUNE_SENTCL_CACHE_GB", stated, rule, move))


class CacheFiles:
    """The files of one identity, which their names state as a hash.

    Every method raises ResourceError where the folder or a file cannot be read or written.
    """

    def __init__(self, kind: str, identity: Mapping[str, str | int]) -> None:
        """Name the files; `identity` is everything that their content depends on."""
        key = json.dumps(dict(identity), sort_keys=True)
        self._stem = f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        self._root = cache_root()
        _limit()  # an error comes before anything is computed

    def read(self, known: Collection[Path] = ()) -> Iterator[tuple[Path, Arrays]]:
        """Map the files that are not known; a damaged file is deleted."""
        for path in sorted({*self._root.glob(f"{self._stem}.*.arrow")}.difference(known)):
            with self._explained():
                try:
                    arrays = _mapped(path)
                    os.utime(path)  # the time of its last use
                except FileNotFoundError:  # deleted meanwhile
                    continue
                except (pa.ArrowException, OSError) as error:
                    if getattr(error, "errno", None):
                        raise  # the file may be whole
                    _log.warning("%s is damaged (%s) and is made again", path, first_line(error))
                    path.unlink(missing_ok=True)
                    continue
            yield path, arrays

    def write(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[Path, Arrays]:
        """Write and map flat arrays, and delete files above the limit; the lock must be held."""
        path = self._root / f"{self._stem}.{uuid4().hex}.arrow"
        scratch = path.with_name(f".{path.name}")
        rows = (pa.LargeListArray.from_arrays([0, len(row)], row) for row in arrays.values())
        table = pa.table(list(rows), names=list(arrays))
        try:
            with self._explained():
                with scratch.open("wb") as file:
                    with pa.ipc.new_file(file, table.schema) as writer:
                        writer.write_table(table)
                    os.fsync(file.fileno())
                mapped = _mapped(scratch)
                scratch.rename(path)
        finally:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
        pa.default_memory_pool().release_unused()  # else what made the arrays stays with Arrow
        self._delete_oldest()
        return path, mapped

    def _delete_oldest(self) -> None:
        limit = _limit()
        with suppress(OSError):  # another process deletes too
            found = [(path.stat(), path) for path in self._root.glob("[!.]*.arrow")]
            size = sum(stat.st_size for stat, _ in found)
            for stat, path in sorted(found, key=lambda one: one[0].st_mtime):
                if size > limit and not path.name.startswith(self._stem):
                    path.unlink(missing_ok=True)
                    size -= stat.st_size

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of these files, and remove what killed processes left."""
        lock = FileLock(self._root / f"{self._stem}.lock")
        with self._explained():
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                _log.warning("waiting for the process that makes %s", self._stem)
                lock.acquire()
            for left in self._root.glob(f".{self._stem}.*"):
                left.unlink(missing_ok=True)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, NotImplementedError) as error:  # the last: the file system has no locks
            rule = f"nothing can be kept there ({first_line(error)})"
            move = "Set TUNE_SENTCL_CACHE to a folder that can be written and has room."
            raise ResourceError(Fault("cache", "", str(self._root), rule, move)) from None


def _mapped(path: Path) -> Arrays:
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    table.validate()
    return {name: table[name].chunk(0).values.to_numpy() for name in table.column_names}
