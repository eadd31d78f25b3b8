"""Run schedules for some seconds of processor time: `python -m tests.simulation SECONDS [SEED]`; 1 after a failure.

With `--seed` and a number, show that schedule alone, with its trace.
"""

import sys
import time

from tests.simulation.schedule import complaints_of, drawn, report_of, traced


def main(words: list[str]) -> int:
    """Run, and say how many schedules there were."""
    if words[:1] == ["--seed"]:
        schedule = drawn(int(words[1]))
        _say(str(schedule), *traced(schedule))
        return 0
    seconds, seed = float(words[0]), int(words[1]) if words[1:] else 0
    began, count = time.process_time(), 0
    while (took := time.process_time() - began) < seconds:
        schedule = drawn(seed + count)
        if complaints_of(schedule):
            _say(
                report_of(schedule),
                f"seed {seed + count} fails: python -m tests.simulation --seed {seed + count}",
            )
            return 1
        count += 1
    _say(f"{count} schedules from seed {seed} on, {60 * count / took:,.0f} a minute of one core")
    return 0


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
