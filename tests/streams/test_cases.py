"""The cases of the programming model, each alone in the local runtime."""

from itertools import chain

import pytest

from penstock import App
from tests.streams.cases import CASES, flows
from tests.streams.two_ways import Kit


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    """Each case publishes what its check says, in both ways of waiting, and leaves no wait behind."""
    case = CASES[name]
    kit = Kit(App(name, *case.members))
    for appends in case.rounds:
        for source, events in appends:
            kit.append(source, events)
    case.check(kit.atoms)
    assert not [key for key in kit.runtime.state if key.startswith("$")]


def test_cleared_keys_are_not_stored() -> None:
    """Counts that were cleared leave nothing in the state."""
    case = CASES[flows.words_of_an_atom.__name__]
    kit = Kit(App("cleared", *case.members))
    for source, events in chain(*case.rounds):
        kit.append(source, events)
    assert kit.runtime.state == {}
