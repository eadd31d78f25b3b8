"""An application with generators: a function that ends, a source that fails, and a file beside the working directory."""

from collections.abc import Iterator

from penstock import App, from_file, generator, stream

numbers = stream("numbers", int)
measured = stream("measured", float)


def counting(first: int) -> Iterator[int]:
    yield from range(first, 9)


app = App(
    "sources",
    generator("counting", numbers, counting, atom_size=2),
    generator("measures", measured, from_file("measures.csv"), atom_size=10),
)
