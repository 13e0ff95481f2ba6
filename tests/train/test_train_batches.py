"""Which rows the loop hands to a method, in a thread or not, and what it notes of the losses."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from processes import wait_until

from tune_sentcl.config import MethodBase, SimcseConfig, TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Batch, Corpus, join_corpora, make_corpus
from tune_sentcl.errors import DataError
from tune_sentcl.methods import Method, MethodInputs, StepLoss
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.train import check_batches, count_steps, train
from tune_sentcl.train.loop import draw_ahead
from tune_sentcl.trial import InputLoader, assemble


class Recorder(Method[MethodBase, Encoder]):
    """Remembers its rows and what it drew; its loss is one weight times the number of rows."""

    def __init__(self, config: TrialConfig) -> None:
        encoder = load_encoder(resolve_checkpoint("toy"), "mean", 64)
        generator = torch.Generator().manual_seed(0)
        super().__init__(config.method, encoder, MethodInputs(config.encoder, generator))
        self.heads = torch.nn.Linear(1, 1)
        self.rows: list[list[int]] = []
        self.draws: list[float] = []

    def draw(self, batch: Batch, generator: np.random.Generator) -> float:
        self.rows.append(batch.rows.tolist())
        self.draws.append(float(generator.random()))
        return len(batch)

    def loss_of(self, drawn: float) -> StepLoss:
        loss = sum(weight.sum() for weight in self.heads.parameters()) * drawn
        return StepLoss(torch.as_tensor(loss), {"part": torch.ones(())}, {"misses": 0.25})


def sentences(count: int) -> Corpus:
    texts = [f"sentence {number}" for number in range(count)]
    return make_corpus("sentences", pa.table({"text": pa.array(texts)}), "made up")


def trial(name: str = "simcse", /, **values: Any) -> TrialConfig:
    common = {"method.name": name, "encoder.checkpoint": "toy", "data.source": "toy"}
    return parse_dotted({**common, "optimizer.batch_size": 4, **values}, "test")


def test_file_order_is_slices_in_every_epoch() -> None:
    config = trial(**{"optimizer.epochs": 2})
    recorder = Recorder(config)
    steps = list(train(recorder, sentences(10), config))
    epoch = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert recorder.rows == 2 * epoch
    assert [step.samples for step in steps] == [4, 8, 10, 14, 18, 20]
    assert [step.epoch for step in steps] == pytest.approx([0.4, 0.8, 1.0, 1.4, 1.8, 2.0])


def test_shuffled_order_deals_each_row_once_an_epoch_and_anew_in_each() -> None:
    config = trial(**{"optimizer.epochs": 3, "data.order": "shuffled"})
    first, again, other = (Recorder(config) for _ in range(3))
    for recorder, seed in ((first, 0), (again, 0), (other, 1)):
        list(train(recorder, sentences(10), config.model_copy(update={"seed": seed})))
    epochs = [[row for rows in first.rows[i : i + 3] for row in rows] for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert first.rows == again.rows != other.rows
    assert first.draws == again.draws != other.draws


@pytest.mark.parametrize("mix", ["proportional", "in_turn"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("order", ["file", "shuffled", "distinct"])
def test_steps_are_counted_as_they_are_dealt(mix: str, drop_last: bool, order: str) -> None:
    """Under `distinct` each epoch may have another number of batches, as texts stand together."""
    parts = (17, 30)
    texts = [["the same" if row % 3 == 0 else f"{of} {row}" for row in range(of)] for of in parts]
    corpora = [make_corpus("sentences", pa.table({"text": pa.array(t)}), "made up") for t in texts]
    corpus = join_corpora(corpora)
    options = {"data.order": order, "data.mix": mix, "data.drop_last": drop_last}
    counts = []
    for seed in range(2):
        config = trial(**{"optimizer.epochs": 3, "seed": seed, **options})
        recorder = Recorder(config)
        steps = list(train(recorder, corpus, config))
        counts.append(count_steps(corpus, config))
        assert len(steps) == len(recorder.rows) == steps[-1].total == counts[-1]
        seen = [row for rows in recorder.rows for row in rows]
        if mix == "proportional" and not drop_last:
            assert sorted(seen) == sorted(3 * [*range(47)])
    if order == "distinct":
        assert drop_last or len(set(counts)) > 1
    else:
        turns = {"proportional": {False: 5 + 8, True: 4 + 7}, "in_turn": {False: 10, True: 8}}
        assert counts[0] == 3 * turns[mix][drop_last]


def test_a_point_of_the_curves_holds_the_loss_its_parts_and_the_rates() -> None:
    config = trial()
    (step, *_) = train(Recorder(config), sentences(10), config)
    assert set(step.losses) == {"loss", "loss.part", "rate.misses"}
    assert step.losses["loss.part"] == 1.0 and step.losses["rate.misses"] == 0.25


def test_long_trials_have_a_bounded_number_of_points() -> None:
    config = trial(**{"optimizer.batch_size": 1})
    steps = list(train(Recorder(config), sentences(400), config))
    shown = [step.number for step in steps if step.losses]
    assert shown == [1, *range(2, 401, 2)]


@pytest.mark.parametrize("size", [2, 4])  # two rows are the fewest
@pytest.mark.parametrize("name", ["conisi", "clsr"])
def test_a_batch_of_one_row_is_refused_before_the_first_step(name: str, size: int) -> None:
    corpus = sentences(9)
    rule = f"optimizer.batch_size = {size}: method {name} needs 2 rows or more in every batch, but"
    with pytest.raises(
        DataError, match=f"{rule} one batch of made up has 1. Set data.drop_last=true"
    ):
        count_steps(corpus, trial(name, **{"optimizer.batch_size": size}))
    assert count_steps(corpus, trial(name, **{"data.drop_last": True})) == 2
    assert count_steps(corpus, trial(name, **{"optimizer.batch_size": 5})) == 2
    with pytest.raises(DataError):  # the only batch is never left out
        count_steps(sentences(1), trial(name, **{"data.drop_last": True}))


def test_a_single_sentence_is_enough_where_no_other_is_needed() -> None:
    assert isinstance(trial().method, SimcseConfig)
    assert count_steps(sentences(9), trial()) == 3
    assert count_steps(sentences(9), trial("none")) == check_batches(sentences(9), trial("none"))
    assert count_steps(sentences(9), trial("none", **{"method.whitening": True})) == 0


LOADER = InputLoader(None)
KINDS: dict[str, dict[str, Any]] = {
    "scl": {"method.name": "scl", "method.num_positives": 1, "method.num_negatives": 3},
    "conisi": {"method.name": "conisi", "method.strategy": "o1"},
    "clsr": {"method.name": "clsr"},
}


class DrawError(Exception):
    """What a draw may raise."""


class Drawer(Recorder):
    """Draws one number a batch, and fails at one of them."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__(short_trial("simcse"))
        self.fails_at = fails_at

    @property
    def drawn(self) -> list[int]:
        """The first rows of the batches so far."""
        return [rows[0] for rows in self.rows]

    def draw(self, batch: Batch, generator: np.random.Generator) -> float:
        if batch.rows[0] == self.fails_at:
            raise DrawError(f"no batch begins with {self.fails_at}")
        super().draw(batch, generator)
        return self.draws[-1]


def short_trial(name: str, /, **values: Any) -> TrialConfig:
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
    config = short_trial(KINDS[kind]["method.name"], **KINDS[kind])
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
    config = short_trial("simcse", **{"optimizer.batch_size": 2, "optimizer.epochs": 1})
    method = Drawer(fails_at=6)
    steps = train(method, sentences(12), config, prefetch=ahead)
    assert [next(steps).number for _ in range(3)] == [1, 2, 3]
    with pytest.raises(DrawError, match="no batch begins with 6"):
        next(steps)
    assert not threads()
