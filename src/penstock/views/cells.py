"""The values of rows in the form in which a target holds them; a value that it cannot hold is NULL, with a reason.

A row key must be there and must stay different from other keys. So a key with a NUL character, which no target shows,
gets another text: `␀` and the key as JSON.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from penstock.views.target import Kind, Row, TableShape

Hold: TypeAlias = Callable[[Any], Any]
"""Returns the form of a value, which is not None; raises `Unheld` without one."""

_MARK: Final = "␀"


class Unheld(Exception):
    """A target cannot hold a value; the message says why."""


def held_text(text: str) -> str:
    """Return a text that any database holds.

    Raises:
        Unheld: No database holds it.
    """
    if "\0" in text:
        raise Unheld("it contains a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unheld("it contains half of a surrogate pair, which is no character") from None
    return text


def held_key(key: str | int) -> str | int:
    """Return the owner of a row, or a row's place, as the row key has it: different keys stay different."""
    if isinstance(key, int) or not ("\0" in key or key.startswith(_MARK)):
        return key
    return _MARK + json.dumps(key)


class Cells:
    """Turns rows of a table into rows that a target holds.

    Args:
        holds: The forms of the kinds that are not held as they are; that of `Kind.JSON` shows reasons, too.
    """

    def __init__(self, shape: TableShape, holds: Mapping[Kind, Hold]) -> None:
        self._names = shape.names
        forms = [holds.get(column.kind) for column in shape.columns[:-1]]
        self._forms: list[Hold | None] = [held_key] * shape.key_width + forms[shape.key_width :]
        self._json = holds.get(Kind.JSON)

    def held(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows in the form of the target."""
        if not rows:
            return []
        *columns, unshown = zip(*rows, strict=True)
        reasons: dict[int, dict[str, str]] = {}
        held = [
            self._column(at, values, reasons) if form else values
            for at, (values, form) in enumerate(zip(columns, self._forms, strict=True))
        ]
        texts = [
            self._reasons((known or {}) | reasons.get(at, {})) if known or at in reasons else None
            for at, known in enumerate(unshown)
        ]
        return list(zip(*held, texts, strict=True))

    def _column(
        self, at: int, values: Sequence[Any], reasons: dict[int, dict[str, str]]
    ) -> Sequence[Any]:
        hold = self._forms[at]
        assert hold is not None
        try:
            return [None if value is None else hold(value) for value in values]
        except Unheld:
            pass  # seldom; so a column without such a value costs no handler for each of its values
        held: list[Any] = []
        for row, value in enumerate(values):
            try:
                held.append(None if value is None else hold(value))
            except Unheld as error:
                held.append(None)
                reasons.setdefault(row, {})[self._names[at]] = str(error)
        return held

    def _reasons(self, reasons: Mapping[str, str]) -> Any:
        text = json.dumps({name: reason.replace("\0", "") for name, reason in reasons.items()})
        return self._json(text) if self._json else text
