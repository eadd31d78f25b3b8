"""Lists that calls append to and read, for a check of the order of calls: a list tells who came before whom."""

from penstock import App, Entity, entity, key, readonly


@entity
class Lists(Entity):
    """A list of numbers, each of which one call has appended."""

    name: str = key()
    numbers: list[int] = []

    def append(self, number: int) -> list[list[int]]:
        """Append a number, and return the list."""
        self.numbers.append(number)
        return [list(self.numbers)]

    def append_both(self, other: "Lists", number: int) -> list[list[int]]:
        """Append a number to two lists, and return them."""
        return [*self.append(number), *other.append(number)]

    @readonly
    def look(self) -> list[int]:
        """Return the list."""
        return self.numbers


app = App("lists", Lists)
