"""ConIsI: contrast a sentence with the pair of itself and itself, and score pairs of sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from tune_sentcl.config import ConisiConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.data.wordnet import Antonyms, load_antonyms
from tune_sentcl.losses import info_nce, interactive
from tune_sentcl.methods.base import Method, MethodInputs, StepLoss, embed
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.modules import InteractionHead
from tune_sentcl.model.tokenizing import plain_vocabulary
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Embeddings, Scalar

_REPLACED = 0.8


def other_rows(count: int, generator: np.random.Generator) -> Int[np.ndarray, " rows"]:
    """Draw another row for each of 2 or more rows, independently and uniformly (strategy s)."""
    drawn = generator.integers(0, count - 1, size=count)
    return drawn + (drawn >= np.arange(count))


def replace_subwords(
    ids: Sequence[int],
    share: float,
    vocabulary: Int[np.ndarray, " tokens"],
    generator: np.random.Generator,
) -> list[int]:
    """Replace about four fifths of some chosen subwords by random subwords (strategy o1).

    A chosen subword is replaced with probability 0.8 and kept with probability 0.2, as in the
    paper. At least one is replaced by a different subword, because the result must differ.

    Args:
        ids: The sentence's content tokens; an empty sentence stays empty.
        share: Fraction of the tokens to choose, rounded to at least one token.
        vocabulary: Tokens to draw from, at least two.
        generator: Draws the subwords and their replacements.
    """
    changed = list(ids)
    if not changed:
        return changed
    count = max(1, round(share * len(changed)))
    chosen = generator.choice(len(changed), size=count, replace=False)
    replaced = generator.random(count) < _REPLACED
    if not replaced.any():
        # `chosen` is in random order, so its first element is a random position.
        replaced[0] = True
    for position in chosen[replaced]:
        drawn = changed[position]
        while drawn == ids[position]:
            drawn = int(vocabulary[generator.integers(len(vocabulary))])
        changed[position] = drawn
    return changed


_SHARES = {"o1": 0.15, "o2": 0.5}
_PASSES = {
    "pairs": (("single",), ("doubled", "composed")),
    "joint": (("doubled", "single", "composed"),),
    "separate": (("doubled",), ("single",), ("composed",)),
}
"""Inputs that pass through the head together, and therefore share batch statistics."""


@dataclass(frozen=True)
class DrawnInputs:
    """The encoder's inputs in their order, and the share of rows for which o2 found no antonym."""

    inputs: Mapping[str, Tokens]
    rates: dict[str, float]


class Conisi(Method[ConisiConfig, Encoder]):
    """Method `conisi` (Sun and Huang, CCL 2022, eq. 10): (1 - lambda) L_con + lambda L_int.

    In training the encoder reads the sentence x, and the pairs Y = (x, x) and Z = (x, c) as two
    segments each. At test it reads only the sentence, without the heads. A term of weight 0 is not
    computed.
    """

    smallest_batch = 2  # batch normalization and strategy s need two rows

    def __init__(self, config: ConisiConfig, encoder: Encoder, inputs: MethodInputs) -> None:
        super().__init__(config, encoder, inputs)
        encoder.check_pairs_fit()
        scores = 1 if config.interaction == "scalar" else encoder.width
        self.heads: InteractionHead = InteractionHead(encoder.width, scores, inputs.generator)
        self._antonyms: Antonyms | None = inputs.resource

    @classmethod
    def resource(cls, config: Any, root: Path | None) -> Antonyms | None:
        """WordNet's antonyms for strategy o2; None for other strategies."""
        return load_antonyms(root) if config.strategy == "o2" else None

    def draw(self, batch: Batch, generator: np.random.Generator) -> DrawnInputs:
        """The inputs of both terms of the loss; the generator draws the sentences c."""
        weight = self.config.lambda_
        contents = self.tokens(batch.corpus, special=False).take("text", batch.rows)
        inputs = {"doubled": self.encoder.pairs(contents, contents)}
        rates: dict[str, float] = {}
        if weight < 1:
            inputs["single"] = self.encoder.singles(contents)
        if weight > 0:
            composed, rates = self._compose(batch, contents, generator)
            inputs["composed"] = self.encoder.pairs(contents, composed)
        return DrawnInputs(inputs, rates)

    def loss_of(self, drawn: DrawnInputs) -> StepLoss:
        """The weighted sum of both terms over the batch."""
        weight = self.config.lambda_
        hidden = self._hidden(
            {
                name: embed(self.encoder, part, self.config.chunk)
                for name, part in drawn.inputs.items()
            }
        )
        parts: dict[str, Scalar] = {}
        total = next(iter(hidden.values())).new_zeros(())
        if weight < 1:
            parts["contrastive"] = info_nce(
                hidden["single"], hidden["doubled"], temperature=self.config.temperature
            ).mean()
            total = total + (1 - weight) * parts["contrastive"]
        if weight > 0:
            scores = (self.heads.score(hidden[name]) for name in ("doubled", "composed"))
            parts["interactive"] = interactive(*scores).mean()
            total = total + weight * parts["interactive"]
        return StepLoss(total, parts, drawn.rates)

    def _hidden(self, states: Mapping[str, Embeddings]) -> dict[str, Embeddings]:
        """The outputs of the head g; `batch_norm` decides which inputs it normalizes together."""
        hidden: dict[str, Embeddings] = {}
        for together in _PASSES[self.config.batch_norm]:
            names = [name for name in together if name in states]
            if names:
                passed = self.heads(torch.cat([states[name] for name in names]))
                hidden |= zip(names, passed.chunk(len(names)), strict=True)
        return hidden

    def _compose(
        self, batch: Batch, contents: Tokens, generator: np.random.Generator
    ) -> tuple[Tokens, dict[str, float]]:
        """The sentences c as content tokens, and the share of rows for which o2 had no antonym."""
        config = self.config
        others = other_rows(len(contents), generator)
        if config.strategy == "s":
            return contents.take(others), {}
        share = config.share or _SHARES[config.strategy]
        lists = contents.lists()
        if config.strategy == "o1":
            vocabulary = self._vocabulary
            changed = [replace_subwords(ids, share, vocabulary, generator) for ids in lists]
            return Tokens.of(changed), {}
        if self._antonyms is None:
            raise ValueError("strategy o2 needs antonyms; see Conisi.resource")
        texts = batch.texts("text")
        turned = [self._antonyms.replace(text, share, generator) or text for text in texts]
        tokens = self.encoder.contents(turned)
        # The antonym text equals the original if no word has an antonym, or if truncation removes
        # all of its antonyms.
        same = [own == content for own, content in zip(tokens, lists, strict=True)]
        composed = [
            lists[other] if unchanged else own
            for own, other, unchanged in zip(tokens, others, same, strict=True)
        ]
        return Tokens.of(composed), {"without_antonym": sum(same) / len(same)}

    @cached_property
    def _vocabulary(self) -> Int[np.ndarray, " tokens"]:
        return plain_vocabulary(self.encoder.tokenizer)


METHOD = Conisi
