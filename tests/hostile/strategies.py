"""Hypothesis strategies for hostile histories: acts at any place, among honest requests."""

from hypothesis import strategies as st

from tests.hostile.places import PLACES
from tests.hostile.programs import ACCOUNTS, DEEDS, TRAPS, Call, Danger

numbers = st.integers(0, ACCOUNTS - 1)
pairs = st.lists(numbers, min_size=2, max_size=2, unique=True)
places = st.lists(st.sampled_from([*PLACES]) | st.sampled_from(TRAPS), max_size=2).map(tuple)

deposits = st.builds(Call, st.just("deposit"), numbers, st.integers(0, 50))
transfers = st.builds(
    lambda pair, amount: Call("transfer", pair[0], amount, pair[1]), pairs, st.integers(0, 150)
)
honest: st.SearchStrategy[Call] = deposits | transfers


def acts(most: Danger) -> st.SearchStrategy[Call]:
    """Give acts that are at most so dangerous."""
    deeds = [deed for level in Danger if level <= most for deed in DEEDS[level]]
    return st.builds(
        lambda pair, where, deed: Call("act", pair[0], friend=pair[1], places=where, deed=deed),
        pairs,
        places,
        st.sampled_from(deeds),
    )


def histories(most: Danger, size: int = 12) -> st.SearchStrategy[list[Call]]:
    """Give histories in which every second request is an act or so."""
    return st.lists(honest | acts(most), min_size=2, max_size=size)
