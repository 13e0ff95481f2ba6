"""What a worker does with the trials that it is handed at once: one, or several as lanes."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from tune_sentcl.errors import NodeDrainingError, StudyError
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.worker import Attempt, Failure, WorkerSettings, return_memory
from tune_sentcl.trial import InputLoader, Progress
from tune_sentcl.trial.lanes import Lanes, LaneTrial, Share

Told = tuple[str, Progress | Failure]
"""A trial's name, and its point or how it has failed."""


class Attempts:
    """One run of each of some trials.

    Law: a trial that fails, or is stopped, ends alone.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        loader: InputLoader,
        settings: WorkerSettings,
        leaves: Callable[[], bool] = lambda: False,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin to count what they cost; `points` does the work.

        Args:
            assignments: What there is to do; several have to be lanes of one training
                (`launch.dealing`).
            loader: Gives what they read.
            settings: Where their files go, and what each may take.
            leaves: Whether this machine is about to go.
            over: Whether lanes are to end before their time; a trial alone has its own.
        """
        self._assignments, self._over, self._compared_by = assignments, over, settings.compared_by
        self._shares = [Share() for _ in assignments]
        if len(assignments) == 1:
            self._attempts = [Attempt(assignments[0], loader, settings, leaves)]
        else:
            self._attempts = [
                Attempt(assignment, loader, settings, leaves, share)
                for assignment, share in zip(assignments, self._shares, strict=True)
            ]
        self._stopped: set[str] = set()

    def stop(self, trial_id: str) -> None:
        """End a trial; to be called before the next point is asked for."""
        self._stopped.add(trial_id)

    def points(self) -> Generator[Told, None, None]:
        """Run the trials; close the generator to stop all of them.

        Raises:
            DeviceError: This process cannot compute any more.
            NodeDrainingError: This machine is about to go, and states are written.
            StudyError: The disk refused.
        """
        if len(self._attempts) == 1:
            yield from self._alone()
            return
        try:
            yield from self._together()
        finally:
            return_memory()

    def _alone(self) -> Generator[Told, None, None]:
        (attempt,), (name,) = self._attempts, (a.trial_id for a in self._assignments)
        try:
            with closing(attempt.points()) as points:
                for progress in points:
                    yield name, progress
                    if name in self._stopped:
                        return
        except Exception as error:  # noqa: BLE001 - the border of a trial: its error becomes its row
            yield name, self._failure(attempt, error)

    def _together(self) -> Generator[Told, None, None]:
        begun: list[tuple[str, Attempt, LaneTrial]] = []
        yield from self._begin(begun)
        if not begun:
            return
        lanes = Lanes([lane for *_, lane in begun], self._compared_by, self._over)
        leaving: Exception | None = None
        with closing(lanes.points()) as points:
            for place, told in points:
                name, attempt, _ = begun[place]
                if isinstance(told, NodeDrainingError):  # the others have a state to leave, too
                    leaving = told
                    continue
                if isinstance(told, Exception):
                    yield name, self._failure(attempt, told)
                else:
                    yield name, told
                if name in self._stopped:
                    lanes.stop(place)
        if leaving is not None:
            raise leaving

    def _begin(self, begun: list[tuple[str, Attempt, LaneTrial]]) -> Generator[Told, None, None]:
        """Read what the trials read; those that cannot be begun have failed."""
        parts = zip(self._assignments, self._attempts, self._shares, strict=True)
        for assignment, attempt, share in parts:
            try:
                with share.alone():
                    inputs, output = attempt.begin()
            except Exception as error:  # noqa: BLE001 - as above
                yield assignment.trial_id, self._failure(attempt, error)
            else:
                lane = LaneTrial(assignment.config, inputs, attempt.account, share, output)
                begun.append((assignment.trial_id, attempt, lane))

    @staticmethod
    def _failure(attempt: Attempt, error: Exception) -> Failure:
        """What an error makes of its trial; one that is not the trial's is raised."""
        if isinstance(error, StudyError | NodeDrainingError):
            raise error
        lost = attempt.lost_device(error)
        if lost is not None:
            raise lost from (None if lost is error else error)
        return attempt.failure(error)
