"""A forecast names the entities in requests and rows, without code of the application."""

from typing import Any

from penstock import App, Entity, key, transactional
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Limits
from penstock.engine.forecast import NAMED_MAX, Forecast
from penstock.engine.task import Task
from penstock.model.request import encode_continuation


class Part(Entity):
    name: str = key()


class Box(Entity):
    name: str = key()
    label: str = "no reference"
    parts: list[Part] = []
    by_label: dict[str, Part | None] = {}

    def put(self, part: Part, *, others: list[Part] | None = None) -> None:
        self.parts = [*self.parts, part, *(others or [])]


@transactional
def rename(box: Box, label: str) -> None:
    box.label = label


app = App("boxes", Box, Part, rename)
forecast = Forecast(app)
BOX = EntityKey("Box/b")


def part(number: int) -> EntityKey:
    return EntityKey(f"Part/p{number}")


def parts(count: int) -> list[Part]:
    return [Part(f"p{number}") for number in range(count)]


def body(*call: Any) -> bytes:
    return app.request(*call)[0]


def row_of(*calls: tuple[Any, ...]) -> bytes:
    """Return the row of the box after calls."""
    task = Task(app, lambda _: None, Limits())
    for number, call in enumerate((("Box", "b", "create", ()), *calls)):
        outcome = task.run(number, RequestId(str(number)), body(*call), 0)
        assert outcome is not None
        assert outcome.error is None
    row = task.written[BOX]
    assert row is not None
    return row


def test_a_request_names_its_entity_and_its_arguments() -> None:
    """By position and by name, at any depth; what is no request names nothing."""
    p0, p1, p2 = parts(3)
    put = body("Box", "b", "put", (p0,), {"others": [p1, p2]})
    assert forecast.of_request(put) == [BOX, part(0), part(1), part(2)]
    assert forecast.of_request(body("", None, "rename", (Box("b"), "Part/p1"))) == [BOX]
    assert forecast.of_request(encode_continuation()) == []
    assert forecast.of_request(b"no request") == []


def test_a_row_names_what_it_refers_to() -> None:
    """Texts of other attributes are no references, and a long row names a bounded number."""
    row = row_of(("Box", "b", "put", (Part("p0"),), {"others": parts(2)}))
    assert forecast.of_row(BOX, row) == [part(0), part(0), part(1)]
    long = row_of(("Box", "b", "put", (Part("p0"),), {"others": parts(2 * NAMED_MAX)}))
    assert len(forecast.of_row(BOX, long)) == NAMED_MAX


def test_rows_of_other_code_name_nothing() -> None:
    """A class that is gone, and a row of an earlier version."""
    row = row_of()
    assert forecast.of_row(EntityKey("Gone/b"), row) == []
    assert forecast.of_row(BOX, b"\x95" + row[1:]) == []
