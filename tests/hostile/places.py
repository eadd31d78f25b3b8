"""Where a deed is done: inside which statement, object or call of a handler.

A place is a name. Those of `PLACES` are functions that do a deed; any other consists of three words,
`list __iter__ returned`: an object of that base whose special method does the deed, and the use that
is made of the object. Places may lie inside each other.
"""

import contextlib
import contextvars
import functools
import operator
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock import savepoint

Deed = Callable[[], Any]
LATER: Final[list[Any]] = []
"""Objects that are kept beyond their transaction."""


@dataclass
class Scene:
    """The entities that an act has at hand: two accounts with money, and a toy without worth."""

    me: Any
    friend: Any
    toy: Any


Place = Callable[[Scene, Deed], Any]


def in_savepoint(_: Scene, deed: Deed) -> Any:
    with savepoint():
        return deed()


def in_caught_savepoint(scene: Scene, deed: Deed) -> Any:
    with contextlib.suppress(Exception), savepoint():
        scene.toy.number += 1
        deed()


def swallowed(_: Scene, deed: Deed) -> Any:
    try:
        return deed()
    except BaseException:  # noqa: BLE001 -- the worst that handlers of users do
        return None


def in_finally(_: Scene, deed: Deed) -> Any:
    try:
        raise KeyError("first")
    finally:
        deed()


def in_except(_: Scene, deed: Deed) -> Any:
    try:
        raise KeyError("first")
    except KeyError:
        return deed()


def while_returning(_: Scene, deed: Deed) -> Any:
    try:
        raise KeyError("lost")
    finally:
        return deed()  # noqa: B012 -- this is what is wrong with it


def in_generator(_: Scene, deed: Deed) -> Any:
    return next(one() for one in [deed])


def in_nested_generators(_: Scene, deed: Deed) -> Any:
    return list(one for one in (inner() for inner in [deed]))  # noqa: C400 -- two on one line


def in_closed_generator(_: Scene, deed: Deed) -> Any:
    def suspended() -> Iterator[int]:
        try:
            yield 1
        finally:
            deed()

    made: Any = suspended()
    next(made)
    return made.close()


def in_thrown_generator(_: Scene, deed: Deed) -> Any:
    def suspended() -> Iterator[Any]:
        try:
            yield 1
        except KeyError:
            yield deed()

    made: Any = suspended()
    next(made)
    return made.throw(KeyError("thrown"))


def in_left_generator(_: Scene, deed: Deed) -> Any:
    """Leave a generator suspended in a savepoint, to be closed whenever it is collected."""

    def suspended() -> Iterator[int]:
        with savepoint():
            try:
                yield 1
            finally:
                deed()

    made = suspended()
    next(made)
    cycle = [made]
    cycle.append(cycle)  # type: ignore[arg-type]


def in_coroutine(_: Scene, deed: Deed) -> Any:
    async def run() -> Any:
        return deed()

    try:
        run().send(None)
    except StopIteration as end:
        return end.value


class Block:
    """A context manager whose end does a deed."""

    def __init__(self, deed: Deed, *, swallows: bool) -> None:
        self.deed = deed
        self.swallows = swallows

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> bool:
        self.deed()
        return self.swallows


def at_exit(_: Scene, deed: Deed) -> Any:
    with Block(deed, swallows=False):
        raise KeyError("inside")


def at_swallowing_exit(_: Scene, deed: Deed) -> Any:
    with Block(deed, swallows=True):
        raise KeyError("inside")
    return 1


def in_property(_: Scene, deed: Deed) -> Any:
    return type("Owner", (), {"it": property(lambda _: deed())})().it


def in_descriptor(_: Scene, deed: Deed) -> Any:
    kind = type("Descriptor", (), {"__set__": lambda *_: deed(), "__get__": lambda *_: deed()})
    owner = type("Owner", (), {"it": kind()})()
    owner.it = 1
    return owner.it


def in_class_body(_: Scene, deed: Deed) -> Any:
    meta = type("Meta", (type,), {"__prepare__": classmethod(lambda *_: deed() or {})})

    return types.new_class("Made", (), {"metaclass": meta})


def in_metaclass_call(_: Scene, deed: Deed) -> Any:
    return type("Meta", (type,), {"__call__": lambda _: deed()})("Made", (), {})()


def in_sort_key(_: Scene, deed: Deed) -> Any:
    return sorted([1, 2], key=lambda _: deed())


def in_callback(_: Scene, deed: Deed) -> Any:
    return functools.reduce(lambda *_: deed(), [1, 2, 3])


def in_exit_stack(_: Scene, deed: Deed) -> Any:
    with contextlib.ExitStack() as stack:
        stack.callback(deed)
        stack.callback(operator.truediv, 1, 0)


def in_copied_context(_: Scene, deed: Deed) -> Any:
    return contextvars.copy_context().run(deed)


def in_entity(scene: Scene, deed: Deed) -> Any:
    return scene.friend.relay(deed)


def in_readonly(scene: Scene, deed: Deed) -> Any:
    return scene.friend.look(deed)


def in_toy_property(scene: Scene, deed: Deed) -> Any:
    LATER.append(deed)
    try:
        return scene.toy.last
    finally:
        LATER.clear()


def in_thread(_: Scene, deed: Deed) -> Any:
    thread = threading.Thread(target=contextvars.copy_context().run, args=(deed,), daemon=True)
    thread.start()
    thread.join()


def in_left_thread(_: Scene, deed: Deed) -> Any:
    """Do it in a thread that goes on when the handler has ended, a while later."""
    running = contextvars.copy_context()
    threading.Timer(0.05, running.run, args=(deed,)).start()


def later(_: Scene, deed: Deed) -> Any:
    """Do it when a cycle of objects is collected, in whichever transaction that is."""
    trap = type("Trap", (), {"__del__": lambda _: deed()})()
    trap.itself = trap


PLACES: Final[dict[str, Place]] = {
    one.__name__: one
    for one in (
        in_savepoint, in_caught_savepoint, swallowed, in_finally, in_except, while_returning,
        in_generator, in_nested_generators, in_closed_generator, in_thrown_generator, in_coroutine,
        at_exit, at_swallowing_exit, in_property, in_descriptor, in_class_body, in_metaclass_call,
        in_sort_key, in_callback, in_exit_stack, in_copied_context, in_entity, in_readonly,
        in_toy_property,
    )
}  # fmt: skip
"""Places where a deed is done at once, in the handler's own thread."""

LATE_PLACES: Final[dict[str, Place]] = {
    one.__name__: one for one in (in_left_generator, in_thread, in_left_thread, later)
}
"""Places outside the handler's thread or time: acts there must not show in any outcome."""

BASES: Final[dict[str, type]] = {
    one.__name__: one for one in (object, list, dict, set, str, int, float, bytes, Exception)
}
HOOKS: Final = (
    "__str__", "__repr__", "__eq__", "__hash__", "__bool__", "__len__", "__iter__", "__getitem__",
    "__contains__", "__getattr__", "__getattribute__", "__setattr__", "__reduce__", "__reduce_ex__",
    "__deepcopy__", "__copy__", "__index__", "__int__", "__float__", "__lt__", "__format__",
    "__call__", "__class__", "__dict__", "__slots__", "__dataclass_fields__", "__struct_fields__",
    "__reference__", "__enter__", "__sizeof__", "__dir__", "__buffer__", "code", "kind", "args",
    "items", "keys", "values", "isoformat", "encode", "__del__",
)  # fmt: skip
PROPERTIES: Final = frozenset(
    {"__class__", "__dict__", "__dataclass_fields__", "__struct_fields__", "__reference__", "code",
     "kind", "args"}
)  # fmt: skip


def trap(base: str, hook: str, deed: Deed) -> Any:
    """Return an object whose special method, or property, does a deed."""

    def act(*_: Any, **__: Any) -> Any:
        return deed()

    members: dict[str, Any] = {hook: property(act) if hook in PROPERTIES else act}
    if hook == "__eq__" and base not in ("list", "dict", "set"):
        members["__hash__"] = lambda _: 7
    return type("Trap", (BASES[base],), members)()


def _store(scene: Scene, made: Any) -> None:
    scene.toy.kept = made


def _store_inside(scene: Scene, made: Any) -> None:
    scene.toy.kept = {"x": [made]}


def _store_typed(scene: Scene, made: Any) -> None:
    scene.toy.number = made


def _store_texts(scene: Scene, made: Any) -> None:
    scene.toy.texts = {"x": made}


def _save(scene: Scene, made: Any) -> None:
    scene.toy.kept = made
    with contextlib.suppress(Exception), savepoint():
        scene.toy.kept = 1
        raise KeyError("back")


def _look(scene: Scene, made: Any) -> Any:
    scene.toy.kept = made
    return scene.friend.look(lambda: 1)


def _raise(_: Scene, made: Any) -> Any:
    raise made if isinstance(made, BaseException) else ValueError(made)


def _chain(_: Scene, made: Any) -> Any:
    raise ValueError("first") from (made if isinstance(made, BaseException) else KeyError(made))


USES: Final[dict[str, Callable[[Scene, Any], Any]]] = {
    "returned": lambda _, made: made,
    "inside": lambda _, made: {"x": [made]},
    "key": lambda _, made: {made: 1},
    "member": lambda _, made: {made},
    "stored": _store,
    "stored-inside": _store_inside,
    "typed": _store_typed,
    "texts": _store_texts,
    "saved": _save,
    "looked": _look,
    "raised": _raise,
    "chained": _chain,
    "referred": lambda scene, made: type(scene.me)(made).balance,
    "created": lambda scene, made: type(scene.toy).create(made),
    "given": lambda scene, made: type(scene.toy).create(f"{scene.me.number}-more", kept=made).kept,
    "awaited": lambda scene, made: scene.friend.relay(lambda: made),
    "existing": lambda scene, made: type(scene.me).exists(made),
    "deleted": lambda scene, made: type(scene.toy).delete(made),
}
"""The use of a trap."""


def do(scene: Scene, places: list[str], deed: Deed) -> Any:
    """Do a deed at a place inside a place inside …"""
    for name in reversed(places):
        deed = functools.partial(_do_at, name, scene, deed)
    return deed()


def _do_at(name: str, scene: Scene, deed: Deed) -> Any:
    place = PLACES.get(name) or LATE_PLACES.get(name)
    if place is not None:
        return place(scene, deed)
    base, hook, use = name.split()
    return USES[use](scene, trap(base, hook, deed))
