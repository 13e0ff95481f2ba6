"""What the tests of the sampling side share: ranges without files, and searches without trials."""

from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.trial import TrialState

from tune_sentcl.space import Range, Space
from tune_sentcl.tuning.sampler.sampling import SamplerName, build_sampler
from tune_sentcl.tuning.sampler.subspaces import Params, Subspaces, propose

Quality = Callable[[Mapping[str, Any]], float]


def space_of(*ranges: Range, **base: Any) -> Space:
    """A space that is its ranges alone; its values need not make legal trials."""
    base = {"method.name": "scl", "optimizer.name": "adamw", **base}
    return Space("planted", "", (), "", (), base, ranges, (0,), "", "planted")


def choice(key: str, *values: Any) -> Range:
    return Range(key, "choice", choices=values)


def frozen(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


class Planted:
    """A search whose results are planted: places are proposed, and told at once."""

    def __init__(
        self, space: Space, sampler: SamplerName, quality: Quality, *, seed: int = 0
    ) -> None:
        self.space, self.quality = space, quality
        self.study = optuna.create_study(direction="maximize")
        self.study.sampler = build_sampler(sampler, seed, 6)
        self.subspaces = Subspaces(space, seed)
        self.held: set[Any] = set()
        self.known_as: Callable[[Params], Any] = frozen

    def next(self) -> Params | None:
        found = propose(
            self.study, self.space, self.subspaces, lambda p: self.known_as(p) not in self.held
        )
        if found is None:
            return None
        trial, params = found
        assert self.known_as(params) not in self.held, "proposed twice"
        assert trial.params == params
        self.held.add(self.known_as(params))
        self.study.tell(trial, self.quality(params))
        return params

    def rest(self, most: int) -> list[Params]:
        """All that is proposed until nothing is left; a bound of what must not be reached."""
        places: list[Params] = []
        while (params := self.next()) is not None:
            places.append(params)
            assert len(places) <= most
        return places

    def reported(self) -> list[dict[str, Any]]:
        return [t.params for t in self.study.trials if t.state == TrialState.COMPLETE]
