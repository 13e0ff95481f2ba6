"""Packing against a restatement that goes from one moment to the next."""

from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.launch.estimate.packing import Load, makespan

WHOLE = st.integers(0, 20)


@st.composite
def loads(draw: st.DrawFn) -> list[Load]:
    return [
        Load(
            draw(WHOLE), draw(WHOLE), draw(st.sampled_from([0, 0, 7])), draw(st.sampled_from("ab"))
        )
        for _ in range(draw(st.integers(0, 12)))
    ]


def ticked(loads: list[Load], slots: int) -> int:
    """A clock of whole seconds, at each of which free slots take what comes next."""
    waiting = list(loads)
    busy_until = [0] * slots
    seen: list[set[str]] = [set() for _ in range(slots)]
    ready = {load.encoder: 0 for load in loads}
    now = 0
    while waiting:
        for slot in range(slots):
            while waiting and busy_until[slot] <= now:
                load = waiting.pop(0)
                if load.once:
                    ready[load.encoder] = max(now, ready[load.encoder]) + int(load.once)
                arrived = now if load.encoder in seen[slot] else now + int(load.warming)
                seen[slot].add(load.encoder)
                busy_until[slot] = max(arrived, ready[load.encoder]) + int(load.seconds)
        now += 1
    return max(busy_until)


@given(loads(), st.integers(1, 4))
def test_trials_lie_as_a_ticking_clock_lays_them(given: list[Load], slots: int) -> None:
    assert makespan(given, slots) == ticked(given, slots)


@given(st.lists(WHOLE, min_size=1), st.integers(1, 4))
def test_a_search_is_as_long_as_its_longest_trial_and_as_its_slots_share(
    seconds: list[int], slots: int
) -> None:
    found = makespan([Load(s) for s in seconds], slots)
    least = max(max(seconds), sum(seconds) / slots)
    assert least <= found <= sum(seconds) / slots + max(seconds)


def test_one_long_trial_at_the_end_is_waited_for() -> None:
    assert makespan([Load(1), Load(1), Load(10)], 2) == 11  # the mean would say 6


def test_what_one_does_for_all_holds_the_others_back() -> None:
    first, second = Load(2, once=10, encoder="a"), Load(2, encoder="a")
    assert makespan([first, second], 2) == 12
    assert makespan([first, Load(2, encoder="b")], 2) == 12
    assert makespan([first, second, second], 1) == 16
