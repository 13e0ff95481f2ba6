"""Static encoders: their vectors, their training as sentence-transformers does it, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from method_samples import toy_triplets, trial_config
from model_samples import SENTENCES, sentence_transformer

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import CheckpointError
from tune_sentcl.methods import MethodInputs, build_method
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.loading import load_base
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.pooling import pool
from tune_sentcl.model.saving import export
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.train.loop import train
from tune_sentcl.trial import InputLoader, assemble
from tune_sentcl.tuning.keeping import kept_bytes

NAME = "static:16:toy"


def static(name: str = NAME, max_length: Any = "auto") -> Encoder:
    return load_encoder(resolve_checkpoint(name), "auto", max_length)


def test_new_vectors_are_those_of_the_tokenizer_and_always_the_same() -> None:
    before = torch.get_rng_state()
    first = static()
    assert torch.equal(before, torch.get_rng_state())
    load_base.cache_clear()  # as in another process
    second = static()
    assert np.array_equal(first.encode(SENTENCES), second.encode(SENTENCES))
    weights = first.transformer.embedding.weight
    assert kept_bytes(trial_config(name="mnr"), resolve_checkpoint(NAME)) == weights.nbytes
    assert 0.9 < weights.std() < 1.1
    assert (first.width, static("static:toy").width) == (16, 1024)
    names = (NAME, "static:toy", "static:16:random:minilm", "static:16:minilm")
    assert len({resolve_checkpoint(name).fingerprint for name in names}) == len(names)


def test_the_seed_draws_the_vectors_of_a_training() -> None:
    starts = []
    for seed in (0, 1, 1):
        values = {"encoder.checkpoint": NAME, "method.name": "mnr", "data.source": "toy"}
        config = parse_dotted({**values, "seed": seed}, "test")
        made = assemble(config, InputLoader(None).load(config), "cpu").encoder
        assert isinstance(made, Encoder)
        starts.append(made.encode(SENTENCES))
    assert np.array_equal(starts[1], starts[2])
    assert not any(
        np.allclose(starts[1], other) for other in (starts[0], static().encode(SENTENCES))
    )


def test_special_tokens_are_left_out_and_prefixes_are_not() -> None:
    encoder, toy = static(), load_base(resolve_checkpoint("toy")).tokenizer
    assert encoder.tokenize(["a dog"]) == [toy("a dog", add_special_tokens=False)["input_ids"]]
    assert not encoder.encode([""]).any()
    assert static("static:16:minilm").max_length == resolve_checkpoint("minilm").max_length


@pytest.mark.parametrize("divisor", [None, 7, np.array([7, 3, 0, 9])])
def test_the_mean_is_that_of_pool(divisor: Any) -> None:
    encoder = static().double()
    tokens = Tokens.of(encoder.tokenize(SENTENCES))
    longest = int(tokens.lengths.max())
    ids = torch.tensor([[*one, *[0] * (longest - len(one))] for one in tokens.lists()])
    mask = (torch.arange(longest) < torch.from_numpy(tokens.lengths)[:, None]).long()
    states = encoder.transformer.embedding.weight[ids]
    expected = pool(states, mask, "mean", divisor)
    torch.testing.assert_close(encoder(tokens, divisor), expected, atol=1e-6, rtol=1e-6)


def test_a_text_that_is_cut_off_is_cut_off_there_too(tmp_path: Path) -> None:
    encoder = static(max_length=3)
    export(encoder, tmp_path / "exported", {})
    theirs = sentence_transformer(tmp_path / "exported").encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES), theirs, atol=1e-6, rtol=0)
    assert not np.allclose(theirs, static().encode(SENTENCES))
    assert resolve_checkpoint(str(tmp_path / "exported")).max_length == 3
    (tmp_path / "exported/tune_sentcl.json").unlink()
    assert resolve_checkpoint(str(tmp_path / "exported")).max_length == 3


def test_sgd_leads_to_the_weights_of_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer import losses

    config = trial_config(name="mnr", temperature=0.05).model_dump(by_alias=True)
    optimizer = {"name": "sgd", "momentum": 0.0, "lr": 0.5, "warmup": 0.0, "batch_size": 6}
    config |= {"optimizer": {**optimizer, "epochs": 2}}
    encoder, rows = static(), toy_triplets(18, 1)
    export(encoder, tmp_path / "start", {})
    checked = TrialConfig.model_validate(config)
    method = build_method(checked, encoder, MethodInputs(checked.encoder, torch.Generator()))
    encoder.double()
    ours = [step.losses["loss"] for step in train(method, rows, checked)]

    model = sentence_transformer(tmp_path / "start").double().train()
    loss_of = losses.MultipleNegativesRankingLoss(model, scale=20.0)
    sgd, theirs = torch.optim.SGD(model.parameters(), lr=0.5), []
    columns = rows.text_columns()
    for _ in range(2):
        for start in range(0, 18, 6):
            part = rows.table.slice(start, 6)
            features = [model.preprocess(part[name].to_pylist()) for name in columns]
            sgd.zero_grad()
            loss = loss_of(features, None)
            loss.backward()
            sgd.step()
            theirs.append(loss.item())
    assert ours == pytest.approx(theirs, rel=1e-6)
    moved = encoder.transformer.embedding.weight
    torch.testing.assert_close(moved, model[0].embedding.weight, atol=1e-6, rtol=0)
    assert not torch.allclose(moved.float(), static().transformer.embedding.weight, atol=0.01)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoder": {"lora_rank": 2}}, r"lora_rank: 2: is not possible for a static encoder"),
        ({"encoder": {"freeze_layers": 1}}, r"freeze_layers: 1: is not possible for a static"),
        ({"method": {"name": "simcse"}}, "simcse: contrasts a sentence under two dropout masks"),
        ({"method": {"name": "conisi"}}, "conisi: reads two sentences as one input"),
    ],
)
def test_what_needs_a_transformer_is_refused(values: Any, message: str) -> None:
    config = trial_config(name="mnr").model_dump(by_alias=True)
    config["method"] = values.get("method", config["method"])
    config["encoder"] |= {"checkpoint": NAME, **values.get("encoder", {})}
    with pytest.raises(CheckpointError, match=message):
        InputLoader(None).load(TrialConfig.model_validate(config))


@pytest.mark.parametrize("pooling", ["cls", "last", "static_last", "modules"])
def test_other_poolings_are_refused(pooling: Any) -> None:
    with pytest.raises(CheckpointError, match=f"{pooling}: a static encoder takes the mean of"):
        load_encoder(resolve_checkpoint(NAME), pooling, "auto")


def test_names_that_cannot_become_static_or_drawn_anew(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("a 1 2\n")
    with pytest.raises(CheckpointError, match="word vectors have no tokenizer"):
        resolve_checkpoint(f"static:{vectors}")
    export(static(), tmp_path / "exported", {})
    with pytest.raises(CheckpointError, match="only a plain transformer can get new"):
        resolve_checkpoint(f"random:{tmp_path / 'exported'}")
    again = resolve_checkpoint(f"static:8:{tmp_path / 'exported'}")
    assert load_encoder(again, "auto", "auto").width == 8
