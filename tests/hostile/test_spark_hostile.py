"""Hostile handlers through real Spark: every other request is answered rightly, within a bound.

One driver takes all of it, from a fixed seed; `scripts/hostile` goes on with other seeds. Of the changes and ends of a
process, which cost the most, the commit chooses some; `scripts/nightly` makes all.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from penstock.errors import Aborted, LimitExceeded, Unhandled
from tests.hostile.places import LATE_PLACES
from tests.hostile.programs import (
    DEEDS,
    LATE_DEEDS,
    LATE_TRAPS,
    Call,
    Danger,
    act,
    beginning,
    between,
    honest,
    random_act,
)
from tests.hostile.rig import Rig, started
from tests.hostile.side_effects import HOGS, KILLERS, SIDE_EFFECTS

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

SLOW = {"loop_in_c", "loop_and_catch", "hang", "stop"}  # tests/faults/test_spark_poison.py has them
COSTLY = {"builtins empty", "builtins", "len wrong", "clock", "tuple", "os.getpid"}  # as "len" is
ONCE_FAILED: list[list[tuple[str, ...]]] = [
    [("tamper spoil_class", "in_savepoint", "in_savepoint")],  # seed 20261129
    [("side-effect folder lost",), ("kill terminate",)],  # seeds 20261132 and 15
    [("side-effect random",), ("side-effect streams closed",)],  # seed 4242
]
BACK_S = 60.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with started(tmp_path_factory.mktemp("hostile") / "data") as made:
        made.run([*beginning(), Call("survey")])
        yield made


@pytest.fixture
def chance(rig: Rig, request: pytest.FixtureRequest) -> Iterator[random.Random]:
    """Give a source of randomness, and look afterwards whether the workers are as they were."""
    chance = random.Random(request.node.name)
    yield chance
    for _ in range(2):
        after = [honest(chance) for _ in range(30)]
        assert rig.run([*after, Call("survey")]) < BACK_S


def codes(rig: Rig, calls: list[Call]) -> dict[str, str | None]:
    """Return how each act among some requests ended."""
    return {call.deed: rig.outcome(call) for call in calls if call.deed}


def test_what_handlers_raise_ends_their_request_alone(rig: Rig, chance: random.Random) -> None:
    """Every exception of the catalogue, in one epoch, is an error of its own request."""
    deeds = [one for one in DEEDS[Danger.NONE] if one.startswith("raise ")]
    calls = between(chance, [act(chance, deed) for deed in deeds], 1)
    rig.run(calls)
    assert set(codes(rig, calls).values()) == {Aborted.code, Unhandled.code, LimitExceeded.code}


def test_any_value_returned_or_stored_is_an_answer(rig: Rig, chance: random.Random) -> None:
    """Values that lie, have no end or no encoding are answered as one thread answers them."""
    verbs = ("return ", "store ", "misuse ")
    deeds = [one for one in DEEDS[Danger.NONE] if one.startswith(verbs)]
    rig.run(between(chance, [act(chance, deed) for deed in deeds], 1))


def test_deeds_at_any_place_are_the_outcome_of_one_thread(rig: Rig, chance: random.Random) -> None:
    """At random places, in methods of random values, deeds leave the epoch to the others."""
    for _ in range(3):
        rig.run(between(chance, [random_act(chance, Danger.NONE) for _ in range(60)], 1))


def test_deeds_after_the_handler_touch_nobody(rig: Rig, chance: random.Random) -> None:
    """Threads, finalizers and generators that outlive their handler change no other request."""
    places = [*LATE_PLACES, *chance.sample(LATE_TRAPS, 30)]
    acts = [act(chance, chance.choice(LATE_DEEDS), [place]) for place in places]
    rig.run(between(chance, acts, 1))


@pytest.mark.turns(
    1, "engine", "runtime", "process", "model", "native", of="handlers that harm their process"
)
@pytest.mark.campaign
def test_a_changed_process_serves_the_others(
    rig: Rig, chance: random.Random, part_of: Callable[[list[str], int], list[str]]
) -> None:
    """After any change by a handler to its process, others are answered in bounded time."""
    deeds = [one for one in DEEDS[Danger.LASTING] if not one.startswith("hog ")]
    left = part_of([one for one in deeds if one.partition(" ")[2] not in COSTLY], 24)
    for start in range(0, len(left), 8):
        acts = [act(chance, deed) for deed in left[start : start + 8]]
        rig.run(between(chance, acts, 2))
        rig.run([*(honest(chance) for _ in range(10)), Call("survey")])


@pytest.mark.turns(
    1, "engine", "runtime", "process", "model", "native", of="handlers that harm their process"
)
def test_rounds_that_once_changed_other_requests(rig: Rig, chance: random.Random) -> None:
    """The guilty acts of seeds that failed, each before acts and honest requests that noticed them."""
    for deeds in ONCE_FAILED:
        acts = [act(chance, deed, places) for deed, *places in deeds]
        rig.run(between(chance, [*acts, act(chance, "give none")], 1))
        rig.run([act(chance, "give set of texts", ["in_readonly"]), Call("survey")])


@pytest.mark.turns(
    1, "engine", "runtime", "process", "model", "native", of="handlers that harm their process"
)
@pytest.mark.campaign
def test_dead_and_greedy_processes_cost_their_request(
    rig: Rig, chance: random.Random, part_of: Callable[[list[str], int], list[str]]
) -> None:
    """Handlers that end their process, or use more than they may, fail alone."""
    always = ["kill kill_oneself", "hog loop"]
    others = [f"kill {one}" for one in KILLERS if one not in SLOW] + [f"hog {one}" for one in HOGS]
    deeds = [*always, *part_of([one for one in others if one not in always], 6)]
    calls = between(chance, [act(chance, deed) for deed in deeds], 2)
    rig.run(calls)
    ended = codes(rig, calls)
    assert None not in ended.values()
    assert ended["kill kill_oneself"] == LimitExceeded.code
    assert ended["hog loop"] == LimitExceeded.code


def test_every_side_effect_of_the_catalogue_occurs() -> None:
    """Acts that are left out here are made at random by the endless run."""
    assert set(SIDE_EFFECTS) > COSTLY
    assert set(KILLERS) > SLOW
