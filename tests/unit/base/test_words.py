"""Words of a command line: values as people write them."""

from datetime import datetime
from datetime import time as clock

import msgspec
import pytest

from penstock.base.given_type import GivenType
from penstock.base.words import value_of_word


@pytest.mark.parametrize(
    ("word", "time"),
    [
        ("2026-12-01T20:00:05Z", "2026-12-01T20:00:05+00:00"),
        ("2026-12-01 20:00:05.25 UTC", "2026-12-01T20:00:05.250000+00:00"),
        ("2026-12-01 20:00+01:00", "2026-12-01T20:00:00+01:00"),
        ("2026-12-01T20:00 -0330", "2026-12-01T20:00:00-03:30"),
        ("2026-12-01 20:00+01", "2026-12-01T20:00:00+01:00"),
    ],
)
def test_times_are_read_as_tables_and_people_write_them(word: str, time: str) -> None:
    """A time that a table shows can be copied into a call, and seconds can be left out."""
    assert value_of_word(word, GivenType(datetime)).isoformat() == time
    assert value_of_word(word, GivenType(datetime | None)).isoformat() == time
    assert value_of_word(word, GivenType(str)) == word


@pytest.mark.parametrize("word", ["2026-12-01 25:00 UTC", "2026-12-01", "20:00", "noon"])
def test_other_texts_are_no_times(word: str) -> None:
    """A day alone is not an instant."""
    with pytest.raises(msgspec.ValidationError):
        value_of_word(word, GivenType(datetime))


def test_a_time_of_day_needs_no_seconds() -> None:
    """A command takes a time of day as people write it; an hour that does not exist is refused."""
    assert value_of_word("20:05", GivenType(clock)) == clock(20, 5)
    with pytest.raises(msgspec.ValidationError):
        value_of_word("25:05", GivenType(clock))
