"""Which configurations run with further seeds, and what a search spends on them."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from restated_ladder import Search, Trial
from search_samples import draw_in_order, finished, knob, lambda_space, proposals

from tune_sentcl.history import Assignment, Result

CHOICES = [n / 10 for n in range(9)]
RANGES = f"method.lambda = {{ choices = {CHOICES} }}"
FAILED, PRUNED = Result("failed"), Result("pruned", rows=2, dev=10.0)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[float, str]]:
    """The configurations by lambda; every sampler draws them in their order."""
    made = proposals(lambda_space(tmp_path_factory.mktemp("all"), *CHOICES))
    with pytest.MonkeyPatch.context() as patch:
        draw_in_order(patch)
        yield {knob(a.config, "method.lambda"): a.configuration for a in made.assignments()}


class Driver:
    """A search with planted results and its restatement."""

    def __init__(self, folder: Path, names: dict[float, str], asked: dict[str, Any]) -> None:
        asked = dict(asked)
        grid = CHOICES[3 : 3 + asked.pop("grid")]
        self.space = lambda_space(folder, *grid, ranges=RANGES)
        self.asked = asked
        self.search = Search(
            [names[value] for value in grid],
            list(names.values()),
            len(asked["seeds"]),
            asked["sampled"],
            asked["reduction"],
            asked["budget"],
        )
        self.results: dict[str, Result] = {}
        self.running: dict[str, Assignment] = {}
        self.given: dict[str, Assignment] = {}
        self.made = proposals(self.space, sampler="random", **asked)

    def trial(self, trial_id: str) -> Trial:
        given = self.given[trial_id]
        return given.configuration, self.asked["seeds"].index(given.config.seed)

    def next(self) -> Trial | None:
        """Hand out a trial, which must be one that the restatement names."""
        scores = {
            self.trial(n): r.values[0] if r.status == "finished" else None
            for n, r in self.results.items()
        }
        expected = self.search.next_trials(scores, [*map(self.trial, self.running)])
        assignment = self.made.next()
        if assignment is None:
            assert not expected
            return None
        self.given[assignment.trial_id] = self.running[assignment.trial_id] = assignment
        found = self.trial(assignment.trial_id)
        assert found in expected
        return found

    def end(self, chance: random.Random) -> None:
        """End a running trial."""
        assignment = self.running.pop(chance.choice(sorted(self.running)))
        name, kind = assignment.trial_id, chance.random()
        result = finished(chance.randrange(4))
        if kind < 0.3:
            result = PRUNED if kind < 0.2 and assignment.origin == "sampler" else FAILED
        self.results[name] = result
        self.made.end(name, result)

    def resume(self) -> None:
        """Forget all that the study does not hold."""
        self.running = {}
        failed = {name for name, result in self.results.items() if result.status == "failed"}
        self.search.again = {self.trial(name) for name in failed}
        held = [self.given[name] for name in self.results]
        adopted = {a.configuration: a.config for a in held if a.origin == "sampler"}
        self.made = proposals(
            self.space, sampler="random", results=self.results, adopted=adopted, **self.asked
        )
        for name in failed:
            del self.results[name]


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "grid": st.sampled_from([1, 3]),
            "sampled": st.integers(0, 10).map(lambda few: 10 - few),
            "seeds": st.sampled_from([(2, 0, 1), (0, 1), (0,)]),
            "reduction": st.sampled_from([None, 2, 3]),
            "budget": st.sampled_from([float("inf"), 4.0, 7.0, 12.0]),
        }
    ),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.integers(0, 10**6).map(random.Random),
)
def test_each_trial_is_the_one_that_a_restatement_names(
    tmp_path_factory: pytest.TempPathFactory,
    names: dict[float, str],
    asked: dict[str, Any],
    workers: int,
    resumes: float,
    chance: random.Random,
) -> None:
    """In any order of the ends, with a resume after any of them."""
    driver = Driver(tmp_path_factory.mktemp("space"), names, asked)
    left = 20  # resumes; each runs the failed trials again
    while True:
        while len(driver.running) < workers and driver.next() is not None:
            pass
        assert driver.made.finished == (not driver.running)
        assert driver.made.done + len(driver.running) <= driver.made.total
        if not driver.running:
            break
        driver.end(chance)
        if left and chance.random() < resumes:
            driver.resume()
            left -= 1
    assert driver.made.done == driver.made.total == len(driver.results)
