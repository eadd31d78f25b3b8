"""A class that changes between epochs: rows that are upcast at each read equal rows that are converted at once.

The twin keeps plain dictionaries, and converts all of them at each deployment. The local runtime and the simulated
engine keep rows of all versions, and upcast those that a transaction reads.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, entity, key, migrate, was
from penstock.base.ids import EntityKey, Lsn, RequestId
from penstock.log.api import Record
from penstock.model.schema_version import SchemaVersion, Versions, first_version
from penstock.model.versions.schema_change import change_of
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.programs import beside_one_thread, drawn
from tests.differential.simulation import Answer, Layout, Simulation

KEYS = ["i1", "i2", "i3"]
NAMES = ["a", "b", "c", "d"]


@dataclass(frozen=True)
class Step:
    """A deployment, and the requests after it.

    Attributes:
        kept: The names of the attributes that stay.
        renamed: Whether the first of them gets another name.
        widened: Whether the type of the last of them becomes wider.
        migrated: Whether a function makes the new version.
        requests: Method, key, and another key.
    """

    kept: list[str]
    renamed: bool
    widened: bool
    migrated: bool
    requests: list[tuple[str, str, str]]


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["look", "look", "grow", "take", "remove", "create"]),
        st.sampled_from(KEYS),
        st.sampled_from(KEYS),
    ),
    max_size=8,
)
STEPS = st.lists(
    st.builds(
        Step,
        st.lists(st.sampled_from(NAMES), unique=True),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        REQUESTS,
    ),
    min_size=1,
    max_size=5,
)


def look(self: Any) -> dict[str, Any]:
    return {name: getattr(self, name) for name in sorted(type(self).__reference__.attributes)}


def grow(self: Any) -> None:
    for name, value in look(self).items():
        setattr(self, name, (value or 0) + 1)


def take(self: Any, other: Any) -> Any:
    theirs = look(other)
    for name in theirs:
        setattr(self, name, theirs[name])
    return theirs


def remove(self: Any) -> None:
    self.delete()


METHODS = {"look": look, "grow": grow, "take": take, "remove": remove}


class Twin:
    """The state as dictionaries, and the declaration of the present version."""

    def __init__(self) -> None:
        self.declared: dict[str, Any] = {"a": int, "n0": int}
        self.former: dict[str, str] = {}
        self.state: dict[str, dict[str, Any]] = {}
        self.number = 0
        self.functions: dict[int, Any] = {}

    def deploy(self, step: Step) -> None:
        """Change the class, and convert each entity at once."""
        self.number += 1
        names = [name for name in self.declared if name in step.kept or name.startswith("r")]
        new = {name: self.declared[name] for name in names}
        self.former = {}
        if step.renamed and names:
            old = names[0]
            new = {(f"r{self.number}" if name == old else name): new[name] for name in names}
            self.former = {f"r{self.number}": old}
        if step.widened and new:
            last = list(new)[-1]
            new[last] = {int: int | None}.get(new[last], new[last])
        new |= {name: int for name in step.kept if name not in new and name not in self.declared}
        new[f"n{self.number}"] = int  # a shape never comes back
        fixed: dict[str, int] = {}
        if step.migrated:
            fixed = {name: 70 + place for place, name in enumerate(new)}

            self.functions[self.number + 1] = lambda _: fixed
        for key_text, values in self.state.items():
            self.state[key_text] = {
                name: fixed[name]
                if step.migrated
                else values.get(self.former.get(name, name), self.number)
                for name in new
            }
        self.declared = new

    def app(self) -> App:
        """Return the application of the present version; a new attribute has the number of its version."""
        values: dict[str, Any] = {
            name: was(former, default=self.number) for name, former in self.former.items()
        }
        body = {
            "__annotations__": {"item_id": str, **self.declared},
            "__module__": __name__,
            **METHODS,
            **dict.fromkeys(self.declared, self.number),
            **values,
            "item_id": key(),
        }
        cls: Any = type("Item", (), body)
        cls.take.__annotations__["other"] = "Item"
        cls = entity(cls)
        marked = [migrate(cls, since=since)(made) for since, made in self.functions.items()]
        return App("shop", cls, *marked)

    def run(self, method: str, one: str, other: str) -> Any:
        """Return the result of a request, and change the state; an error is None."""
        state = self.state
        if method == "create":
            if one not in state:
                state[one] = dict.fromkeys(self.declared, self.number)
            return None
        if one not in state or (method == "take" and other not in state):
            return None
        match method:
            case "look":
                return dict(sorted(state[one].items()))
            case "grow":
                state[one] = {name: (value or 0) + 1 for name, value in state[one].items()}
            case "take":
                state[one] = dict(state[other])
                return dict(sorted(state[other].items()))
            case _:
                del state[one]
        return None


def declared_versions(versions: Versions, app: App, epoch: int) -> Versions:
    """Return the versions after a deployment, which the class has learned."""
    item = app.entities["Item"]
    version: SchemaVersion
    if not versions:
        version = first_version(item.shape, item.attributes, 0)
    else:
        change = change_of(versions, item, epoch)
        assert change is not None
        assert change.refusals == []
        version = change.version
    item.learn((*versions, version))
    return (*versions, version)


def records_of(requests: list[tuple[str, str, str]], app: App, lsn: int) -> list[Record]:
    """Return the records of requests, from a position in the log on."""
    records = []
    for place, (method, one, other) in enumerate(requests, lsn):
        arguments = (app.entities["Item"].of_text(other),) if method == "take" else ()
        name = "delete" if method == "remove" else method
        body, _ = app.request("Item", one, name, arguments)
        records.append(Record(Lsn(place), RequestId(f"r{place}"), body, place))
    return records


@beside_one_thread
@drawn(60)
@given(REQUESTS, STEPS, st.integers(1, 3), st.integers(0, 5))
def test_rows_of_all_versions_equal_converted_rows(
    first: list[tuple[str, str, str]], steps: list[Step], tasks: int, scatter: int
) -> None:
    """Replies and values are those of the twin; rows and replies of the engine are those of one thread."""
    twin = Twin()
    versions: Versions = ()
    state: dict[EntityKey, bytes] = {}
    created = [("create", name, name) for name in KEYS]
    lsn = 0
    for epoch, requests in enumerate([created + first, *(step.requests for step in steps)]):
        if epoch:
            twin.deploy(steps[epoch - 1])
        app = twin.app()
        versions = declared_versions(versions, app, epoch)
        records = records_of(requests, app, lsn)
        lsn += len(records)
        serial = LocalRuntime(app)
        serial.state.update(state)
        replies = list(serial.replay(records))
        engine = Simulation(app, Layout(tasks, scatter=scatter), state)
        if records:
            answers = engine.epoch(records, [b""] * len(records))
            assert answers == [Answer(one.request_id, one.error, one.data) for one in replies]
        assert engine.state == serial.state
        expected = [twin.run(*request) for request in requests]
        read = [None if one.error else msgspec.msgpack.decode(one.data) for one in replies]
        shown = [
            value if request[0] in ("look", "take") else None
            for request, value in zip(requests, read, strict=True)
        ]
        assert shown == expected
        state = serial.state
        item = app.entities["Item"]
        values = {
            name.partition("/")[2]: item.plain(name.partition("/")[2], row)
            for name, row in state.items()
        }
        assert values == twin.state
