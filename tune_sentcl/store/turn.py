"""One driver a study at a time, on every kind of storage."""

from collections.abc import Callable

from tune_sentcl.store.disk import is_shared
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.lease import Lease, leased
from tune_sentcl.store.lock import StudyLock


class Turn:
    """A driver's time with a study, from its making until `end`.

    On this machine's own disk the system's lock keeps others out, and frees itself however its
    holder ends. A shared disk or an object store has a lease; so has any study that has had one
    before, for whoever took it has seen that others write here.
    """

    def __init__(self, files: StudyFiles, say: Callable[[str], None] | None = None) -> None:
        """Begin, or say who has the study.

        Args:
            files: The study.
            say: Is told when another's lease has to be watched first.

        Raises:
            StudyError: Another driver has it, or the disk refused.
        """
        self._files, self._say = files, say
        own = files.folder is not None and not is_shared(files.folder)
        self._lock = StudyLock(files.folder) if own and files.folder else None
        self._lease: Lease | None = None
        try:
            if not own or leased(files):
                self.share()
        except BaseException:
            self.end()
            raise

    @property
    def lease(self) -> int:
        """The number of the lease; 0 where none is needed."""
        return self._lease.number if self._lease else 0

    def share(self) -> None:
        """Take a lease, if there is none yet.

        Raises:
            StudyError: Another driver has it, or the disk refused.
        """
        if self._lease is None:
            self._lease = Lease(self._files, self._say)

    def check(self) -> None:
        """See that the turn goes on, before a write.

        Raises:
            StudyError: Another driver has taken over, or that cannot be seen.
        """
        if self._lease is not None:
            self._lease.check()

    def end(self) -> None:
        """Let others have the study; a second call does nothing."""
        try:
            if self._lease is not None:
                self._lease.release()
        finally:
            if self._lock is not None:
                self._lock.release()
