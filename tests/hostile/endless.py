"""Hostile requests from one seed after the other, for as long as one wants; `scripts/hostile` runs it.

Every seed is a driver on an empty data directory and some epochs, so that a seed can be repeated
alone. Each request that misbehaves is printed before it is sent, with the outcome of its epoch behind.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.hostile.programs import Call, Danger, beginning, between, honest, random_act
from tests.hostile.rig import Defect, Rig, started

EPOCHS = 8
ACTS = 6


def main(arguments: list[str]) -> int:
    """Go on until the time is over or something is wrong; say which, and how to see it again."""
    parser = argparse.ArgumentParser(
        prog="scripts/hostile",
        description="Send hostile requests among honest ones to real Spark, and check each answer.",
        epilog="Exit code 1: a request has stopped, delayed or changed another one.",
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long to go on (default 60)"
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument(
        "--danger",
        choices=[one.name.lower() for one in Danger],
        default=Danger.DEADLY.name.lower(),
        help="the worst that a request may do to its process (default deadly)",
    )
    chosen = parser.parse_args(arguments)
    most = Danger[chosen.danger.upper()]
    ended: Counter[str] = Counter()
    deadline = time.monotonic() + chosen.seconds
    seed = chosen.seed
    while True:
        try:
            run(seed, most, ended)
        except (Defect, AssertionError) as defect:
            _say(f"\n{defect}\n\nseed {seed} fails; to see it again:")
            _say(f"  scripts/hostile --seconds 0 --seed {seed} --danger {chosen.danger}")
            return 1
        seed += 1
        if time.monotonic() >= deadline:
            break
    _say(f"\n{sum(ended.values())} hostile requests, of seeds {chosen.seed} to {seed - 1}:")
    for what, count in sorted(ended.items()):
        _say(f"{count:7}  {what}")
    return 0


def run(seed: int, most: Danger, ended: Counter[str]) -> None:
    """Send all epochs of a seed, and count how each verb ended.

    Raises:
        Defect: A request has stopped, delayed or changed another one.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, started(Path(folder) / "data") as rig:
        rig.run([*beginning(), Call("survey")])
        for number in range(EPOCHS):
            acts = [random_act(chance, most) for _ in range(ACTS)]
            _say(f"seed {seed}, epoch {number}:")
            for one in acts:
                _say(f"  {one}")
            seconds = rig.run(between(chance, acts, 2))
            after = rig.run([*(honest(chance) for _ in range(10)), Call("survey")])
            _say(f"  answered within {seconds:.1f} s, the honest ones after them {after:.1f} s")
            _count(rig, acts, ended)


def _count(rig: Rig, acts: list[Call], ended: Counter[str]) -> None:
    for one in acts:
        verb = one.deed.partition(" ")[0]
        code = rig.outcome(one)
        ended[f"{verb}: {code or 'took effect'}"] += 1


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 -- its output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
