"""The state that the variables of a handler hold while it waits: it is still the state when the handler goes on.

A step ends where a handler waits, and the steps in between may change the rows of its state. A variable that holds a
list, a dictionary or a record of an attribute is that of the attribute afterwards, too, with the present contents. So
the objects are set apart when the handler begins to wait, and get the present contents in place when it goes on. What
the handler holds depends on its rows alone, so a handler that stayed in memory and a stored handler that runs again
find the same.

Rows have no identities, so each object gets a counterpart in the present contents. For a container or a record, it is
the value at the same attribute or key. For an element of a list, it is the element with the same contents, which may have
moved; without such an element, a record takes the record with the same first field, and a container takes the container
at the same index. An object without a counterpart was removed, and belongs to no state any more. Immutable values keep
their contents.
"""

from builtins import id as identity_of  # for one moment of one process, as `deepcopy` does
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.base.ids import EntityKey
from penstock.model.contents import Attributes, Contents, form_of, is_constant, is_private
from penstock.model.context import Transaction
from penstock.model.entity_type import EntityType

_get: Final = object.__getattribute__


class HeldState(dict[EntityKey, Attributes]):
    """The attributes that variables of one waiting handler hold, by the key of their row; nearly always empty."""

    __slots__ = ()

    def keep(self, txn: Transaction, keys: Iterable[EntityKey]) -> None:
        """Set the attributes apart that a variable may hold, at the end of a turn; the state goes on with copies."""
        for key in keys:
            instance = txn.instances.get(key)
            if instance is None:
                continue
            entity_type: EntityType = type(instance).__reference__
            if not txn.is_live(entity_type, instance) or is_private(instance, txn.sharing(key)):
                continue
            values = _get(instance, "__dict__")
            name = values[entity_type.key_name]
            txn.replace(key, entity_type.decode(name, entity_type.encode(values)))
            self[key] = values

    def load(self, txn: Transaction, rows: Mapping[str, EntityType]) -> list[EntityKey]:
        """Make the rows live whose attributes are held, and return their keys."""
        for key in self:
            entity_type = rows[key.partition("/")[0]]
            instance = entity_type.of_text(key[len(entity_type.prefix) :])
            if not txn.is_live(entity_type, instance):
                txn.load(entity_type, instance)
        return [*self]

    def restrict(self, keys: Mapping[EntityKey, object]) -> None:
        """Drop the attributes of other rows."""
        for key in [*self]:
            if key not in keys:
                del self[key]

    def take_up(self, txn: Transaction) -> None:
        """Give the held attributes the present contents, and let them be the state again."""
        for key, values in self.items():
            present = _get(txn.instances[key], "__dict__")
            txn.replace(key, _present(values, present, set()))
        self.clear()


def _present(former: Any, value: Any, used: set[int]) -> Any:
    """Return a value of the state; a former object has taken its place if it can, with its contents.

    Args:
        former: The former value in the same place.
        used: The identities of the former objects that have a place.
    """
    cls = type(value)
    if type(former) is not cls or is_constant(cls) or identity_of(former) in used:
        return value
    used.add(identity_of(former))
    form = form_of(cls)
    was, now = form.read(former), form.read(value)
    items = _present_items(cls, was.items, now.items, used)
    if issubclass(cls, tuple):
        return tuple.__new__(cls, items)
    target = value if issubclass(cls, frozenset) or _is_frozen(cls) else former
    named = None
    if now.named is not None:
        before = was.named or {}
        named = {name: _present(before.get(name), it, used) for name, it in now.named.items()}
    pairs = zip(was.slots, now.slots, strict=True)
    slots = tuple(_present(before, it, used) for before, it in pairs)
    attributes = _get(target, "__dict__") if form.has_dict else None
    form.write(target, Contents(items, attributes, named, slots))
    return target


def _present_items(cls: type, former: Any, items: Any, used: set[int]) -> Any:
    if type(items) is dict:
        return {key: _present(former.get(key), value, used) for key, value in items.items()}
    if type(items) is not list or issubclass(cls, frozenset):
        return items
    if issubclass(cls, tuple):
        longer = [*former, *[None] * len(items)]
        return [_present(*pair, used) for pair in zip(longer, items, strict=False)]
    if all(is_constant(type(part)) for part in former):
        return items
    partners = _partners(former, items)
    return [
        _present(former[partners[index]], part, used) if index in partners else part
        for index, part in enumerate(items)
    ]


def _partners(former: Sequence[Any], items: Sequence[Any]) -> dict[int, int]:
    """Return the index of the former element that each element of a list was, by its index."""
    partners: dict[int, int] = {}
    left = {index: _print_of(part) for index, part in enumerate(former)}
    changed = {index: _print_of(part) for index, part in enumerate(items)}
    for mark_of in (_whole, _start):
        known: dict[Any, list[int]] = {}
        for before in reversed(left):
            known.setdefault(mark_of(before, left[before]), []).append(before)
        for index, mark in [*changed.items()]:
            if alike := known.get(mark_of(index, mark)):
                partners[index] = alike.pop()
                del left[partners[index]], changed[index]
    return partners


def _whole(_: int, mark: tuple[Any, ...]) -> tuple[Any, ...]:
    return mark


def _start(index: int, mark: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the class with the first field of a record, or with the index of a container."""
    return (mark[0], index) if issubclass(mark[0], list | dict | set | deque) else mark[:2]


def _print_of(value: Any) -> tuple[Any, ...]:
    """Return a value as a tuple that is equal for equal contents: its class, and its parts."""
    cls = type(value)
    entity_type = getattr(cls, "__reference__", None)
    if isinstance(entity_type, EntityType):
        return cls, entity_type.key_of(value)
    if is_constant(cls):
        return cls, getattr(value, "name", None) or repr(value)
    contents = form_of(cls).read(value)
    items, named = contents.items, contents.named or {}
    parts: Iterable[Any] = map(_print_of, items)
    if type(items) is dict:
        parts = [(_print_of(key), _print_of(part)) for key, part in items.items()]
    elif issubclass(cls, set | frozenset):
        parts = [frozenset(parts)]
    fields = [(name, _print_of(part)) for name, part in named.items()]
    slots = [(number, _print_of(part)) for number, part in enumerate(contents.slots)]
    return (cls, *parts, *fields, *slots)


def _is_frozen(cls: Any) -> bool:
    """Say whether a class of records declares that its values do not change."""
    dataclass_parameters = getattr(cls, "__dataclass_params__", None)
    struct_parameters = getattr(cls, "__struct_config__", None)
    model_parameters = getattr(cls, "model_config", None)
    return bool(
        getattr(dataclass_parameters, "frozen", False)
        or getattr(struct_parameters, "frozen", False)
        or (isinstance(model_parameters, dict) and model_parameters.get("frozen"))
    )
