"""Whether all nodes see the same folder: files with a word that nobody can guess."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tune_sentcl.errors import StudyError
from tune_sentcl.store.disk import temporary
from tune_sentcl.store.files import StudyFiles


class Nonces:
    """The driver's file, which every node has to see, and a file of each node, which it has to.

    So all see the same place, for two nodes that see the driver's see each other's. Where there is
    no such folder yet, the nearest one above it that there is stands for it.
    """

    def __init__(self, study: str, nodes: Sequence[str]) -> None:
        """Nothing is written yet; see `nonces`.

        Args:
            study: A folder or a URL.
            nodes: Their ids.
        """
        place = study
        if "://" not in study:
            place = str(next(p for p in (Path(study), *Path(study).parents) if p.is_dir()))
        self._place, self._files, self._text = place, StudyFiles.at(place), uuid.uuid4().hex
        # As temporary files of this process they go at last when the study is next opened.
        self._driver = temporary(Path("probe")).name
        self._mine = {node: temporary(Path("probe")).name for node in nodes}

    def of(self, node: str) -> dict[str, str]:
        """What one node is told of them."""
        mine = self._mine[node]
        return {"place": self._place, "driver": self._driver, "mine": mine, "text": self._text}

    def write(self) -> None:
        """Leave the driver's file.

        Raises:
            StudyError: That cannot be.
        """
        self._files.write_bytes(self._driver, f'"{self._text}"'.encode())

    def missed(self, node: str) -> str:
        """Why what a node has written is not seen here; empty where it is."""
        with suppress(StudyError):
            if self._files.read_json(self._mine[node]) == self._text:
                return ""
        return "writes there what the driver does not see"

    def delete(self) -> None:
        """Leave nothing behind."""
        for name in (self._driver, *self._mine.values()):
            with suppress(StudyError):
                self._files.delete(name)


@contextmanager
def nonces(study: str, nodes: Sequence[str]) -> Iterator[Nonces]:
    """The driver's file is there while the body runs; nothing is afterwards.

    Raises:
        StudyError: The driver cannot write there.
    """
    files = Nonces(study, nodes)
    try:
        files.write()
        yield files
    finally:
        files.delete()
