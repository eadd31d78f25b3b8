"""The random numbers, texts and names of the specification (clauses 2.1.6 and 4.3.2)."""

from dataclasses import dataclass
from random import Random
from string import ascii_letters, digits

SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
CHARACTERS = ascii_letters + digits
LAST_NAME_A = 255
CUSTOMER_A = 1023
ITEM_A = 8191


@dataclass(frozen=True)
class Scale:
    """How many items the company has, and how many customers each district.

    The numbers of stock rows, orders and last names follow from these two.
    """

    items: int = 100_000
    customers: int = 3_000

    def __post_init__(self) -> None:
        if self.items < 20 or self.customers < 30 or self.customers % 30:
            raise ValueError("a scale has at least 20 items, and a multiple of 30 customers")

    @property
    def last_names(self) -> int:
        return self.customers // 3

    @property
    def delivered(self) -> int:
        """The number of orders of a district that are delivered at first."""
        return self.customers * 7 // 10


FULL = Scale()


@dataclass(frozen=True)
class Constants:
    """The constants C of NURand; `last_name_load` is for the population, the others for terminals."""

    last_name_load: int
    last_name: int
    customer: int
    item: int


def constants(seed: int) -> Constants:
    """Draw the constants; those of last names have the distance that clause 2.1.6.1 asks for."""
    draw = Random(seed)
    distance = draw.choice([one for one in range(65, 120) if one not in (96, 112)])
    load = draw.randrange(LAST_NAME_A - distance + 1)
    return Constants(load, load + distance, draw.randint(0, CUSTOMER_A), draw.randint(0, ITEM_A))


def nurand(draw: Random, a: int, c: int, last: int, first: int = 1) -> int:
    """Return NURand(a, first, last): a number that is not uniformly distributed.

    Args:
        draw: The source of random numbers.
        a: The constant A of the range.
        c: The constant C of the run.
        last: The largest result.
        first: The smallest result.
    """
    mixed = draw.randint(0, a) | draw.randint(first, last)
    return (mixed + c) % (last - first + 1) + first


def last_name(number: int) -> str:
    """Return the last name of a number below 1,000: a syllable for each digit."""
    return "".join(SYLLABLES[int(digit)] for digit in f"{number:03}")


def text(draw: Random, least: int, most: int) -> str:
    """Return a random text whose length is between two numbers."""
    return "".join(draw.choices(CHARACTERS, k=draw.randint(least, most)))


def number_text(draw: Random, length: int) -> str:
    return "".join(draw.choices(digits, k=length))


def data(draw: Random) -> str:
    """Return I_DATA or S_DATA; one in ten contains ORIGINAL."""
    found = text(draw, 26, 50)
    if draw.randrange(10):
        return found
    at = draw.randint(0, len(found) - 8)
    return f"{found[:at]}ORIGINAL{found[at + 8 :]}"
