"""Batches that a thread draws ahead: the same numbers, states and errors as without it."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from processes import wait_until
from test_train_batches import Recorder, sentences

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.train import loop, train
from tune_sentcl.train.loop import draw_ahead
from tune_sentcl.trial import InputLoader, assemble

LOADER = InputLoader(None)
KINDS: dict[str, dict[str, Any]] = {
    "scl": {"method.name": "scl", "method.num_positives": 1, "method.num_negatives": 3},
    "conisi": {"method.name": "conisi", "method.strategy": "o1"},
    "clsr": {"method.name": "clsr"},
}


class ToldError(Exception):
    """What a draw may raise."""


class Drawer(Recorder):
    """Draws one number a batch, and fails at one of them."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__(trial("simcse"))
        self.fails_at = fails_at

    @property
    def drawn(self) -> list[int]:
        """The first rows of the batches so far."""
        return [rows[0] for rows in self.rows]

    def draw(self, batch: Batch, generator: np.random.Generator) -> float:
        if batch.rows[0] == self.fails_at:
            raise ToldError(f"no batch begins with {self.fails_at}")
        super().draw(batch, generator)
        return self.draws[-1]


def trial(name: str, /, **values: Any) -> TrialConfig:
    base = {
        "encoder.checkpoint": "toy",
        "encoder.pooling": "mean",
        "encoder.train_length": 32,
        "data.source": "toy",
        "data.limit": 40,
        "optimizer.batch_size": 8,
        "optimizer.epochs": 2,
        "optimizer.lr": 1e-3,
    }
    return parse_dotted({**base, "method.name": name, **values}, "test")


def batches(count: int) -> Iterator[Batch]:
    corpus = sentences(2 * count)
    return (Batch(corpus, np.arange(2 * n, 2 * n + 2)) for n in range(count))


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("ahead")}


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    assert not threads()


def trained(kind: str, ahead: int) -> tuple[list[Any], list[Any], list[torch.Tensor]]:
    """Losses, drawing states and weights behind every step."""
    config = trial(KINDS[kind]["method.name"], **KINDS[kind])
    inputs = LOADER.load(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        method = assemble(config, inputs, "cpu")
        losses, states = [], []
        for step in train(method, inputs.corpus, config, prefetch=ahead):
            losses.append(step.losses)
            states.append(step.state().plain["draws"])
    modules = (method.encoder, method.heads)
    return losses, states, [w.detach() for m in modules for w in m.parameters()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_changes_no_number_and_no_state(kind: str) -> None:
    losses, states, weights = trained(kind, 0)
    assert len(losses) == 10
    draws = {str(state) for state in states}
    assert len(draws) == (1 if kind == "clsr" else 10)
    again = trained(kind, 4)
    assert again[:2] == (losses, states)
    assert all(torch.equal(a, b) for a, b in zip(weights, again[2], strict=True))


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_batch_s_state_is_its_own_however_much_is_drawn_ahead(ahead: int) -> None:
    expected = np.random.default_rng(3)
    with closing(draw_ahead(Drawer(), batches(6), np.random.default_rng(3), ahead)) as drawing:
        for number, drawn in enumerate(drawing):
            assert drawn.drawn == expected.random()
            assert drawn.after == expected.bit_generator.state
            assert drawn.batch.rows[0] == 2 * number


@pytest.mark.parametrize("ahead", [0, 4])
def test_the_first_batch_is_drawn_by_whoever_asks(ahead: int) -> None:
    """A thread that tokenizes a corpus, or waits for it, would not hear a signal."""
    drawers = []

    class Telling(Drawer):
        def draw(self, batch: Batch, generator: np.random.Generator) -> float:
            drawers.append(threading.current_thread())
            return super().draw(batch, generator)

    with closing(draw_ahead(Telling(), batches(3), np.random.default_rng(0), ahead)) as drawing:
        assert len(list(drawing)) == 3
    assert drawers[0] is threading.main_thread()
    assert (drawers[1] is threading.main_thread()) == (ahead == 0)


def test_no_more_is_drawn_than_was_allowed() -> None:
    method = Drawer()
    with closing(draw_ahead(method, batches(20), np.random.default_rng(0), 3)) as drawing:
        next(drawing)
        wait_until(lambda: len(method.drawn) == 4, "what may be drawn ahead")
    assert method.drawn == [0, 2, 4, 6]  # the thread has ended


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_an_error_comes_up_at_its_own_batch(ahead: int) -> None:
    config = trial("simcse", **{"optimizer.batch_size": 2, "optimizer.epochs": 1})
    method = Drawer(fails_at=6)
    steps = train(method, sentences(12), config, prefetch=ahead)
    assert [next(steps).number for _ in range(3)] == [1, 2, 3]
    with pytest.raises(ToldError, match="no batch begins with 6"):
        next(steps)
    assert not threads()


def test_a_training_that_is_closed_ends_its_thread() -> None:
    config = trial("simcse", **{"optimizer.batch_size": 2})
    with closing(train(Drawer(), sentences(40), config)) as steps:
        next(steps)
        assert threads()
    assert not threads()


@pytest.mark.parametrize(("written", "read"), [(0, 4), (4, 0)])
def test_a_state_goes_on_whoever_drew_ahead(written: int, read: int) -> None:
    config = trial("scl", **KINDS["scl"])
    inputs = LOADER.load(config)

    def steps_of(ahead: int, state: Any = None) -> Any:
        torch.manual_seed(4)
        method = assemble(config, inputs, "cpu")
        return train(method, inputs.corpus, config, state, prefetch=ahead)

    with torch.random.fork_rng(devices=[]):
        whole = [step.losses for step in steps_of(0)]
        with closing(steps_of(written)) as steps:
            next(steps), next(steps)
            state = next(steps).state()
        assert [step.losses for step in steps_of(read, state)] == whole[3:]


@pytest.mark.parametrize("began", ["bf16", "fp32"])
def test_a_training_goes_on_in_the_precision_that_it_began_in(
    began: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`auto` is tried where a training begins; where it goes on, the answer may be another."""
    config = trial("scl", **KINDS["scl"], **{"optimizer.precision": "auto"})
    inputs = LOADER.load(config)
    answers = [began, "tf32"]
    monkeypatch.setattr(loop, "arithmetic", lambda *_: answers.pop(0))
    state = None
    for _ in range(2):
        method = assemble(config, inputs, "cpu")
        with closing(train(method, inputs.corpus, config, state)) as steps:
            step = next(steps)
            state = step.state()
        assert isinstance(method.encoder, Encoder)
        assert method.encoder.arithmetic == step.arithmetic == began
