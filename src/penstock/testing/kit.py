"""`Kit`: an application in a test, with a clock of its own and a look inside.

```python
kit = Kit(app)
kit.call.Item.create("i1", price=3)
assert kit.entity("Item", "i1") == {"item_id": "i1", "price": 3, "stock": 0}
```

It promises to be the same at every run: the clock stands still until it is moved, and request ids
are counted, so `now`, `random` and `uuid` repeat themselves. What it runs on is the local runtime,
which is what every other runtime must agree with. A handler's exception arrives as it does
everywhere, as `Aborted` with its class's name in `kind`; here it is the `__cause__` as well:

```python
with pytest.raises(Aborted, match="OutOfStock: i1") as caught:
    kit.call.Item("i1").subtract(5)
assert isinstance(caught.value.__cause__, OutOfStock)
```
"""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from penstock.base.ids import EntityKey, split_entity_key
from penstock.base.schema import reference_type
from penstock.engine.execute import Limits
from penstock.errors import RequestError
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.reply import Reply
from penstock.runtime.local.runtime import LocalRuntime
from penstock.state.digest import digest_of_mapping
from penstock.testing.clock import VirtualClock

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Kit:
    """One application, empty at first, that processes each request at once.

    Attributes:
        call: Calls entities and functions as one writes it: `kit.call.Item("i1").add(5)`.
        clock: What `penstock.now()` answers.
        runtime: What runs it.
    """

    def __init__(self, app: App, *, limits: Limits | None = None, start: datetime = START) -> None:
        self.clock = VirtualClock(start)
        self.runtime = LocalRuntime(app, limits=limits, clock=lambda: self.clock.time_us)
        self.call = self.runtime.call

    def submit(
        self,
        entity: str,
        key: object,
        method: str,
        positional: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> Reply:
        """Process a request and return its reply as it is recorded, failures too."""
        return self.runtime.submit(entity, key, method, positional, named, request_id)

    def entity(self, name: str, key: object) -> dict[str, Any] | None:
        """Return an entity's key and attributes; None where it does not exist.

        Values are as handlers see them, but for references: these are their keys.

        Raises:
            RequestError: There is no such class.
            Unencodable: It cannot have such a key.
        """
        kind = self._kind(name)
        text = kind.key_text(key)
        data = self.runtime.state.get(EntityKey(kind.prefix + text))
        return None if data is None else _dump(kind, text, data)

    def entities(self, name: str) -> dict[Any, dict[str, Any]]:
        """Return all entities of a class by their keys.

        Raises:
            RequestError: There is no such class.
        """
        kind = self._kind(name)
        found = [(split_entity_key(key), data) for key, data in self.runtime.state.items()]
        return {
            kind.key_at(text): _dump(kind, text, data)
            for (class_name, text), data in sorted(found)
            if class_name == name
        }

    def digest(self) -> str:
        """Return one hash of the whole state, equal where every entity is."""
        return digest_of_mapping(self.runtime.state)

    def _kind(self, name: str) -> EntityType:
        kind = self.runtime.app.entities.get(name)
        if kind is None:
            known = ", ".join(self.runtime.app.entities)
            raise RequestError(f"there is no entity class {name!r}; there are {known}")
        return kind


def _dump(kind: EntityType, text: str, data: bytes) -> dict[str, Any]:
    return {name: _plain(one) for name, one in kind.decode(kind.key_at(text), data).items()}


def _plain(value: Any) -> Any:
    """Replace references by their keys, at any depth."""
    reference = reference_type(type(value))
    if isinstance(reference, EntityType):
        return reference.key_at(reference.text_of(value))
    match value:
        case dict():
            return {_plain(name): _plain(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return type(value)(_plain(one) for one in value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = {
                field.name: _plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.init
            }
            return dataclasses.replace(value, **changes)
        case _:
            return value
