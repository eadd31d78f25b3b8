"""Misuse of entities: deeds that an entity's own class makes possible. None of them touches money."""

import copy
import gc
from collections.abc import Callable
from typing import Any, Final

from penstock import savepoint
from penstock.model.context import current
from tests.hostile.exceptions import refuse
from tests.hostile.places import Scene

KEPT: Final[list[Any]] = []
"""Entities that an earlier transaction has kept; which ones depends on the process."""


def delete_and_write(scene: Scene) -> None:
    scene.toy.delete()
    scene.toy.number = 1


def delete_twice(scene: Scene) -> None:
    scene.toy.delete()
    scene.toy.delete()


def delete_and_create(scene: Scene) -> Any:
    scene.toy.delete()
    return type(scene.toy).create(scene.toy.name, number=3)


def create_again(scene: Scene) -> None:
    type(scene.toy).create(scene.toy.name)


def create_many(scene: Scene) -> None:
    for number in range(2_000):
        type(scene.toy).upsert(f"{scene.toy.name}-{number}")


def create_when_collected(scene: Scene) -> None:
    kind, name = type(scene.toy), f"{scene.toy.name}-late"
    trap = type("Trap", (), {"__del__": lambda _: kind.upsert(name)})()
    del trap


def change_class(scene: Scene) -> None:
    scene.toy.number = 1
    scene.toy.__class__ = type(scene.me)


def change_class_of_reference(scene: Scene) -> None:
    scene.toy.__class__ = type("Other", (), {})


def change_key(scene: Scene) -> None:
    scene.toy.name = "another"


def change_key_below(scene: Scene) -> None:
    scene.toy.number = 1
    scene.toy.__dict__["name"] = 7


def replace_attributes(scene: Scene) -> None:
    scene.toy.number = 1
    scene.toy.__dict__ = {"name": scene.toy.name, "number": 3, "kept": 1, "texts": {}}


def clear_attributes(scene: Scene) -> None:
    scene.toy.number = 1
    scene.toy.__dict__.clear()


def clear_reference(scene: Scene) -> None:
    scene.toy.__dict__.clear()


def name_attribute_by_number(scene: Scene) -> None:
    scene.toy.number = 1
    scene.toy.__dict__[7] = 7


def share_attributes(scene: Scene) -> None:
    scene.toy.number = 1
    other = type(scene.toy).upsert(f"{scene.toy.name}-twin")
    other.__dict__ = scene.toy.__dict__


def add_attribute(scene: Scene) -> None:
    scene.toy.unknown = 1


def delete_attribute(scene: Scene) -> None:
    del scene.toy.number


def keep_itself(scene: Scene) -> None:
    scene.toy.kept = scene.toy


def keep_unknown(scene: Scene) -> None:
    scene.toy.friend = type(scene.toy)("nobody")


def use_unknown(scene: Scene) -> Any:
    return type(scene.toy)("nobody").number


def refer_to_nothing(scene: Scene) -> Any:
    return type(scene.toy)("")


def refer_at_length(scene: Scene) -> Any:
    return type(scene.toy)("x" * 1_000)


def refer_to_surrogate(scene: Scene) -> Any:
    return type(scene.toy).create("\ud800")


def refer_with_slash(scene: Scene) -> Any:
    return type(scene.toy).upsert("../a/b\0c").name


def copy_itself(scene: Scene) -> Any:
    return copy.deepcopy(scene.toy) is scene.toy, copy.copy(scene.toy).number


def new_below(scene: Scene) -> Any:
    made = object.__new__(type(scene.toy))
    return made.number


def subclass(scene: Scene) -> Any:
    return type("Derived", (type(scene.toy),), {})(scene.toy.name).number


def spoil_transaction(_: Scene) -> None:
    txn = current()
    txn.instances = txn.before = None  # type: ignore[assignment]


def spoil_instances(_: Scene) -> None:
    txn: Any = current()
    txn.instances[7] = 7


def nest_savepoints(scene: Scene) -> None:
    for _ in range(100):
        with savepoint():
            scene.toy.number += 1


def leave_savepoint_open(_: Scene) -> None:
    savepoint().__enter__()


def count_all(_: Scene) -> None:
    """Touch every object of the process."""
    for one in gc.get_objects():
        type(one)


PLAIN: Final[dict[str, Callable[[Scene], Any]]] = {
    one.__name__: one
    for one in (
        delete_and_write, delete_twice, delete_and_create, create_again, create_many,
        create_when_collected, change_class, change_class_of_reference, change_key,
        change_key_below, replace_attributes, clear_attributes, clear_reference,
        name_attribute_by_number, share_attributes, add_attribute, delete_attribute, keep_itself,
        keep_unknown, use_unknown, refer_to_nothing, refer_at_length, refer_to_surrogate,
        refer_with_slash, copy_itself, new_below, subclass, nest_savepoints,
    )
}  # fmt: skip
"""Misuse with one outcome, wherever it runs."""


def keep_for_later(scene: Scene) -> None:
    KEPT.append(scene.toy)
    KEPT.append(scene.toy.__dict__)


def use_kept(_: Scene) -> None:
    for one in KEPT:
        if not isinstance(one, dict):
            one.exists(one)


def spoil_class(scene: Scene) -> None:
    kind: Any = type(scene.toy)
    kind.__getattribute__ = refuse


def spoil_kind(scene: Scene) -> None:
    type(scene.toy).__reference__.attributes.clear()


LASTING: Final[dict[str, Callable[[Scene], Any]]] = {
    one.__name__: one
    for one in (
        spoil_transaction, spoil_instances, leave_savepoint_open, count_all,
        keep_for_later, use_kept, spoil_class, spoil_kind,
    )
}  # fmt: skip
"""Misuse that reaches into the engine, or into later transactions of its process."""
