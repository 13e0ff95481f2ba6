"""Flat tokens against the lists that they hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.model.tokens import Tokens, batches_by_length

LISTS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), min_size=1, max_size=6)


@given(LISTS, st.data())
def test_tokens_are_the_lists_they_were_made_of(
    lists: list[list[int]], data: st.DataObject
) -> None:
    tokens = Tokens.of(lists, [[len(ids)] * len(ids) for ids in lists])
    assert len(tokens) == len(lists)
    assert tokens.lists() == lists
    assert tokens.lengths.tolist() == [len(ids) for ids in lists]
    assert tokens.lengths_of(np.arange(len(lists))).tolist() == tokens.lengths.tolist()
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=8))
    taken = tokens.take(np.array(rows, dtype=np.int64))
    assert taken.lists() == [lists[row] for row in rows]
    assert taken.types is not None
    assert taken.types.tolist() == np.repeat(taken.lengths, taken.lengths).tolist()
    both = Tokens.concatenate([taken, tokens])
    assert both.lists() == [*(lists[row] for row in rows), *lists]


def test_parts_without_types_are_of_the_first_segment() -> None:
    both = Tokens.concatenate([Tokens.of([[5, 6]]), Tokens.of([[7]], [[1]])])
    assert both.types is not None
    assert both.types.tolist() == [0, 0, 1]
    assert Tokens.concatenate([Tokens.of([[5]]), Tokens.of([[6]])]).types is None


def test_types_go_with_their_tokens() -> None:
    with pytest.raises(ValueError, match="iterator too short"):
        Tokens.of([[5, 6]], [[1]])


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 60))
def test_batches_hold_every_input_once_and_few_tokens(lengths: list[int], budget: int) -> None:
    falling = np.array(sorted(lengths, reverse=True), dtype=np.int64)
    found = list(batches_by_length(falling, budget))
    assert [row for part in found for row in range(part.start, part.stop)] == list(
        range(len(lengths))
    )
    for part in found:
        count = part.stop - part.start
        assert count == 1 or count * falling[part.start] <= budget
