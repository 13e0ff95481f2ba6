"""What the tests of the sampling side share: ranges without files, and searches without trials."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.space import Range, Space
from tune_sentcl.tuning import halving, search_run
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.sampler.sampling import Sampler, TpeSampler, build_sampler
from tune_sentcl.tuning.sampler.subspaces import Params
from tune_sentcl.tuning.search_options import SamplerName

Quality = Callable[[Mapping[str, Any]], float]


def space_of(*ranges: Range, **base: Any) -> Space:
    """A space that is its ranges alone; its values need not make legal trials."""
    base = {"method.name": "scl", "optimizer.name": "adamw", **base}
    return Space("planted", "", (), "", (), base, ranges, (0,), "", "planted")


def choice(key: str, *values: Any) -> Range:
    return Range(key, "choice", choices=values)


def frozen(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


def told(sampler: Sampler | Proposals, *states: TrialState) -> list[FrozenTrial]:
    """What TPE was told, in the order in which it was; or its trials with other states."""
    found = sampler._sampler if isinstance(sampler, Proposals) else sampler
    assert isinstance(found, TpeSampler)
    return found._study.get_trials(states=states or (TrialState.COMPLETE,))


def let_toys_have_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of two steps too."""
    monkeypatch.setattr(halving, "LEAST_STEPS", 0)
    monkeypatch.setattr(search_run, "with_affordable_shares", lambda prepared, recorded: prepared)


class Planted:
    """A search whose results are planted: places are proposed, and told at once."""

    def __init__(
        self, space: Space, sampler: SamplerName, quality: Quality, *, seed: int = 0
    ) -> None:
        self.space, self.quality = space, quality
        self.sampler = build_sampler(sampler, space, seed, 6)
        self.held: set[Any] = set()
        self.known_as: Callable[[Params], Any] = frozen

    def next(self) -> Params | None:
        params = self.sampler.propose(lambda p: self.known_as(p) not in self.held)
        if params is None:
            return None
        assert self.known_as(params) not in self.held, "proposed twice"
        self.held.add(self.known_as(params))
        self.sampler.begin(str(frozen(params)))
        self.sampler.tell(str(frozen(params)), params, self.quality(params))
        return params

    def rest(self, most: int) -> list[Params]:
        """All that is proposed until nothing is left; a bound of what must not be reached."""
        places: list[Params] = []
        while (params := self.next()) is not None:
            places.append(params)
            assert len(places) <= most
        return places
