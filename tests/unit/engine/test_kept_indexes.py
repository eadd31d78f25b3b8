"""A deployment builds an index again only if stored entities may have other values in it."""

from enum import Enum
from typing import Any

import pytest

from penstock import App, Entity, index, key, migrate, was
from penstock.base.ids import EntityKey
from penstock.engine.built_indexes import kept_indexes
from penstock.model.call import Call
from penstock.runtime.local.runtime import LocalRuntime

MOODS = {"CALM": 1, "WILD": 2}
FIRST = ("age: int = 0", "size: int = 0", "mood: Mood = Mood.CALM")
PETS = 80


def pets(
    *attributes: str,
    moods: dict[str, int] = MOODS,
    changed: Any = None,
    by_size: str = 'index("size", order="age")',
    **options: Any,
) -> App:
    """Return an application with a class of these attributes, and two indexes."""
    lines = ["class Pet(Entity, **options):", "name: str = key()", *attributes]
    lines += [f"by_size = {by_size}", 'by_mood = index("mood")']
    names: dict[str, Any] = {"Entity": Entity, "index": index, "key": key, "was": was}
    names |= {"Mood": Enum("Mood", moods), "options": options, "__name__": __name__}
    exec("\n    ".join(lines), names)
    functions = [] if changed is None else [migrate(names["Pet"], since=2)(changed)]
    return App("pets", names["Pet"], *functions)


def started(*attributes: str) -> LocalRuntime:
    """Return a runtime with pets."""
    runtime = LocalRuntime(pets(*attributes))
    for number in range(PETS):
        values = {"age": number * 37 % 50, "size": number % 2, "mood": 1 + number % 2}
        runtime.submit(Call("Pet", f"p{number:02}", "create", (), values)).value()
    return runtime


def rows_of(runtime: LocalRuntime, name: str) -> dict[EntityKey, bytes]:
    prefix = f"$index/Pet.{name}/"
    return {key: row for key, row in runtime.state.items() if key.startswith(prefix)}


@pytest.mark.parametrize(
    ("attributes", "options", "kept"),
    [
        pytest.param(("weight: int = 7", *FIRST[::-1]), {}, {"by_size", "by_mood"}, id="added"),
        pytest.param(
            (*FIRST[:2], 'temper: Mood = was("mood", default=Mood.CALM)', "mood: Mood = Mood.WILD"),
            {},
            {"by_size"},
            id="new-under-a-former-name",
        ),
        pytest.param(
            (
                'years: int = was("age", default=0)',
                'age: int = was("size", default=0)',
                "size: int = 3",
                FIRST[2],
            ),
            {},
            {"by_mood"},
            id="renamed-to-a-former-name",
        ),
        pytest.param(FIRST, {"moods": {**MOODS, "SHY": 3}}, {"by_size"}, id="larger-enumeration"),
        pytest.param(
            ("age: int = 0", "size: int | None = 0", FIRST[2]), {}, {"by_mood"}, id="other-type"
        ),
        pytest.param(
            (*FIRST, "more: int = 0"), {"by_size": 'index("size")'}, {"by_mood"}, id="other-order"
        ),
        pytest.param(FIRST, {"personal": True, "by_size": 'index("size")'}, set(), id="personal"),
        pytest.param(
            (*FIRST, "more: int = 0"),
            {"changed": lambda old: {**old, "size": 5, "more": 1}},
            set(),
            id="migrated",
        ),
    ],
)
def test_only_the_same_values_are_kept(
    attributes: tuple[str, ...], options: dict[str, Any], kept: set[str]
) -> None:
    """The rows of a kept index are the same bytes as before; each index finds the entities by the values that they have."""
    runtime = started(*FIRST)
    former, before = runtime.app.indexes, dict(runtime.state)
    app = pets(*attributes, **options)
    runtime.deploy(app)
    assert kept_indexes(app, former) == {f"Pet.{name}" for name in kept}
    for name in kept:
        assert rows_of(runtime, name) == {
            key: row for key, row in before.items() if key.startswith(f"$index/Pet.{name}/")
        }
    for number in range(PETS):  # an entry that an index lacks is damage for a change
        pet = EntityKey(f"Pet/p{number:02}")
        assert runtime.submit(Call("Pet", f"p{number:02}", "delete", (), {})).value() is None
        assert pet not in runtime.state
    assert not any(key.startswith("$index/") for key in runtime.state)


def test_what_versions_do_not_tell_builds_the_index_again() -> None:
    """A function of `@migrate` may be other code by now, and a shape that a class has had twice has no single place among its versions."""
    runtime = started(*FIRST)
    changed: dict[str, Any] = {"changed": lambda old: {**old, "size": 5, "more": 1}}
    migrated = pets(*FIRST, "more: int = 0", **changed)
    runtime.deploy(migrated)
    added = pets(*FIRST, "more: int = 0", "most: int = 0", **changed)
    runtime.deploy(added)
    assert not kept_indexes(added, migrated.indexes)
    assert kept_indexes(added, added.indexes) == set(added.indexes)

    runtime = started(*FIRST)
    more, back = pets(*FIRST, "more: int = 0"), pets(*FIRST)
    runtime.deploy(more)
    runtime.deploy(back)
    assert not kept_indexes(back, more.indexes)
