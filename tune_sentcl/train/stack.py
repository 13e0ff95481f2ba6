"""Many trainings of one method as one batched model.

A lane is one training: its weights are a slice of the stack's, of which its own modules are views,
so that evaluation, states and checkpoints read them where they are. Lanes differ in whatever is a
number to a step (rates, decays, temperature), in their rows, and in widths: on a GPU they are
padded with zeros that stay zeros. They share nothing that one of them could spoil for another.
"""

from collections.abc import Mapping, Sequence

import torch

from tune_sentcl.data.rows.corpus import Corpus, RowNumbers
from tune_sentcl.errors import Fault, OutOfMemoryError, first_line
from tune_sentcl.train.deck import Deck, Lane, stackable_of
from tune_sentcl.train.embedded import Embedded
from tune_sentcl.train.memory import out_of_memory

_CACHED = 2**20
"""How many weights of a deck stay in a core's cache from one step to the next."""
_COMPARED = 2**24
"""Pairs of rows that lanes compare at once on a CPU, where nobody says when memory runs out: the
system ends the process. Of so many a step gains nothing more by going together."""


class Stack:
    """Lanes that make their updates together.

    Law: what a lane comes to is what its training alone comes to, up to the rounding of sums, of
    which there is none on a CPU whose library sums alike in one product and in many; lanes that
    join, leave or diverge change nothing of the others.
    """

    def __init__(self, corpus: Corpus, device: str, *, pads: bool | None = None) -> None:
        """No lanes yet.

        Args:
            corpus: The rows of all lanes.
            device: Where they are trained.
            pads: Whether all lanes are one batch, whatever their widths; None: on a GPU. On a CPU
                padding costs as much as it has numbers, and lanes are to stay in the cache.
        """
        self._corpus, self._device = corpus, device
        self._pads = device != "cpu" if pads is None else pads
        self._embedded: Embedded | None = None
        self._decks: list[Deck] = []
        self._at_once: int | None = None

    @property
    def rows(self) -> int:
        """Of the corpus."""
        return len(self._corpus)

    def join(self, lane: Lane) -> None:
        """Take in a lane, whose weights and moments are what they are now."""
        if self._embedded is None:
            columns = stackable_of(lane.method).lane_columns
            self._embedded = Embedded(lane.method.encoder, self._corpus, columns, self._device)
        for deck in self._decks:
            if self._pads or _go_together(lane, deck.lanes):
                deck.add(lane)
                return
        self._decks.append(Deck(self._embedded, lane, pads=self._pads))

    def leave(self, lane: Lane) -> None:
        """Let a lane go, with weights of its own; nothing happens where it has gone."""
        for deck in self._decks:
            if lane in deck.lanes:
                deck.remove(lane)
        self._decks = [deck for deck in self._decks if deck.lanes]

    def update(self, lanes: Sequence[Lane]) -> None:
        """Make the next update of some lanes.

        Raises:
            OutOfMemoryError: That of one lane alone does not fit the device's memory.
        """
        batches = {lane: next(lane.batches) for lane in lanes}
        for deck in self._decks:
            here = {lane: batches[lane] for lane in deck.lanes if lane in batches}
            for length in sorted({len(rows) for rows in here.values()}):
                self._step(deck, {lane: r for lane, r in here.items() if len(r) == length})
        for lane, rows in batches.items():
            lane.number += 1
            lane.samples += len(rows)

    def _step(self, deck: "Deck", batches: Mapping[Lane, RowNumbers]) -> None:
        """Lanes whose batches are of one length go together, as many as the memory holds."""
        left = list(batches)
        rows = len(batches[left[0]])
        most = len(left) if self._device != "cpu" else max(1, _COMPARED // rows**2)
        while left:
            chosen = left[: min(most, self._at_once or most)]
            try:
                deck.step({lane: batches[lane] for lane in chosen})
                left = left[len(chosen) :]
                continue
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                told = first_line(error)
            # Nothing has moved yet: weights move once all gradients are there.
            torch.cuda.empty_cache()
            if len(chosen) == 1:
                rule = "must fit the device's memory, for the method couples the rows of a batch"
                move = "Lower optimizer.batch_size."
                fault = Fault("a training step", "", f"a batch of {rows} rows", rule, move)
                raise OutOfMemoryError(f"{fault}\n{told}")
            self._at_once = len(chosen) // 2


def _go_together(lane: Lane, others: Sequence[Lane]) -> bool:
    """Whether lanes have one shape, and stay in a core's cache together."""
    shapes, there = ([w.shape for w in one.weights.values()] for one in (lane, others[0]))
    size = sum(shape.numel() for shape in shapes)
    return shapes == there and (len(others) + 1) * size <= _CACHED
