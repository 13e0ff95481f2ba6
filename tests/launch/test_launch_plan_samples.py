"""What an estimate times stands for the whole: rows of steps, and sentences by length."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch_samples import NoInputs

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.rows.batches import batches
from tune_sentcl.launch.estimate.encoding import EncodingPace, time_encoding
from tune_sentcl.launch.estimate.stepping import sample_steps
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.seeding import stream
from tune_sentcl.train import count_steps

TOY = {"encoder.checkpoint": "toy", "data.source": "toy"}


def config(method: str, **values: Any) -> TrialConfig:
    return parse_dotted({"method.name": method, **TOY, **values}, "test")


@pytest.mark.parametrize("size", [24, 48, 100, 500])
@pytest.mark.parametrize("order", ["file", "groups", "shuffled_groups"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_timed_rows_stand_for_all_that_an_epoch_sees(
    size: int, order: str, drop_last: bool
) -> None:
    trial = config(
        "scl",
        **{
            "optimizer.batch_size": size,
            "data.order": order,
            "data.drop_last": drop_last,
            "data.limit": 450,
        },
    )
    corpus = NoInputs().load(trial).corpus
    sample = sample_steps(trial, corpus)
    dealt = batches(
        corpus, size, trial.data.order, stream(0, "order", 0), drop_last=trial.data.drop_last
    )
    seen = sum(map(len, dealt))
    assert sample.size <= 64 and len(sample.rows) % sample.size == 0
    assert sample.size * sample.ratio * count_steps(corpus, trial) == pytest.approx(seen)
    timed = set(sample.rows.texts("hypothesis"))
    for batch in (dealt[0], dealt[max(0, len(dealt) - 2)]):  # the last may be short
        assert timed & set(corpus.table.take(batch)["hypothesis"].to_pylist())


@pytest.mark.parametrize("order", ["shuffled", "distinct"])
@pytest.mark.parametrize("mix", ["proportional", "in_turn"])
def test_short_batches_in_between_are_not_timed(order: str, mix: str) -> None:
    mixed = {"data.source": "toy + toy + toy", "data.order": order, "data.mix": mix}
    trial = config("simcse", **{"optimizer.batch_size": 100, "data.limit": 203, **mixed})
    corpus = NoInputs().load(trial).corpus
    sample = sample_steps(trial, corpus)
    assert sample.size == 32
    seen = sample.size * sample.ratio * count_steps(corpus, trial)
    assert seen == pytest.approx(609)


def test_a_frozen_encoder_is_run_on_few_rows_of_whole_batches() -> None:
    trial = config("clsr", **{"optimizer.batch_size": 150})
    sample = sample_steps(trial, NoInputs().load(trial).corpus)
    assert (sample.size, sample.ratio) == (150, 1.0)
    assert len(sample.rows.sentences()) <= 2 * 64


LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=30)


@given(LENGTHS)
def test_sentences_cost_what_lies_between_those_timed(lengths: list[int]) -> None:
    pace = EncodingPace((10.0, 20.0), (1.0, 3.0), 0.5)
    sentences = [f"{number:03d}" + "x" * length for number, length in enumerate(lengths)]

    def seconds(length: int) -> float:
        return 1.0 if length < 10 else 3.0 if length > 20 else 1.0 + (length - 10) / 5

    one_by_one = sum(seconds(len(sentence)) for sentence in sentences)
    assert pace.encode(sentences) == pytest.approx(one_by_one)
    assert pace.encode(sentences * 2) == pytest.approx(one_by_one), "each distinct one once"
    assert pace.tokenize(sentences * 2) == pytest.approx(sum(map(len, sentences)) / 2)


@pytest.mark.parametrize("count", [0, 1, 2, 40, 400])
def test_any_number_of_sentences_can_be_timed(count: int) -> None:
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 32)
    sentences = ["dog " * (1 + number % 9) + str(number) for number in range(count)]
    pace = time_encoding(encoder, [*sentences, *sentences], budget=0.05)
    assert list(pace.lengths) == sorted(pace.lengths)
    assert all(second > 0 for second in pace.seconds)
    assert (pace.encode(sentences) > 0) == (count > 0)
    assert np.isfinite(pace.encode(["y" * 1000]))
