"""Tills whose handlers write with `logging`, and count how often they run."""

import logging

from penstock import App, Entity, key, send

_log = logging.getLogger("tills")
RUNS: list[str] = []


class Odd:
    """A value whose text cannot be shown."""

    def __str__(self) -> str:
        raise LookupError("no text")


class Till(Entity):
    """A till that tells what it does."""

    name: str = key()
    total: int = 0

    def move(self, other: "Till", amount: int) -> int:
        """Move an amount; an unlucky one fails after its line."""
        RUNS.append(self.name)
        other.total += self.total % 7 + amount
        self.total -= amount
        _log.info("moved %d", amount, extra={"to": other.name})
        if amount == 13:
            raise ValueError("unlucky")
        return other.total

    def roam(self) -> None:
        """Change a till that only the state names, so that no forecast knows it."""
        RUNS.append(self.name)
        self.total += 1
        other = Till("abcd"[self.total % 4])
        other.total += 1
        _log.info("roamed to %s", other.name)

    def pass_on(self, other: "Till", amount: int) -> None:
        """Let another request do it."""
        _log.info("passed on")
        send(Till.move, self, other, amount)

    def mumble(self) -> None:
        """Write lines that are hard to show."""
        _log.info("too few %s %s", "words")
        _log.info("odd", extra={"odd": Odd(), "big": 1 << 80, "deep": {"a": [(1, None)]}})
        try:
            raise KeyError("gone")
        except KeyError:
            _log.exception("caught", extra={"request": "mine"})

    def swear(self) -> None:
        """Write lines that no encoding takes, and one of very many values."""
        _log.info("bad \ud800", extra={"half": "\udfff"})
        logging.getLogger("tills.\ud800").error("named")
        _log.log(1 << 70, "high")
        _log.info("wide", extra={f"value{number}": "x" * 10_000 for number in range(1_000)})

    def babble(self, lines: int, size: int) -> None:
        """Write many lines."""
        for number in range(lines):
            _log.info("%d %s", number, "x" * size)


app = App("tills", Till)
