"""The analysis finds every call, read and write, and which entities are known before a run."""

import itertools
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, Entity, key, now, random, savepoint, transactional
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.text import plan_text
from tests.checkout import TOP
from tests.streams.table_app import shop_and_desk
from tests.unit.dataflow.orchard_app import (
    SINGLETON,
    Basket,
    Derived,
    Leaf,
    Other,
    Pair,
    Sums,
    edges_of,
    generate,
    grow_all,
    pick,
    ping,
    service,
    shown,
    warnings_of,
    wrapped,
)


def test_call_in_a_loop_over_an_argument() -> None:
    """A loop variable has the element type of its list and the origin of the list."""

    def root(leaves: list[Leaf]) -> None:
        for leaf in leaves:
            leaf.grow(1)

    assert edges_of(root) == {"call Leaf.grow argument loop"}


def test_tuple_unpacking_in_dictionaries() -> None:
    """Keys and values of dictionaries are told apart, also through tuples."""

    def root(them: dict[str, tuple[Leaf, Other]]) -> None:
        for name, (leaf, other) in them.items():
            leaf.grow(len(name))
            other.shrink(1)
        first, *_ = them.values()
        first[1].shrink(2)

    assert edges_of(root) == {
        "call Leaf.grow argument loop",
        "call Other.shrink argument loop",
        "call Other.shrink argument",
    }


def test_reference_from_state_is_dynamic() -> None:
    """A reference that was read from an entity is known only when the method runs."""

    def root(leaf: Leaf) -> None:
        if leaf.twin:
            leaf.twin.grow(1)

    assert edges_of(root) == {
        "read Leaf.twin argument",
        "read Leaf.twin argument perhaps",
        "call Leaf.grow state perhaps",
    }


def test_result_of_a_call_is_dynamic() -> None:
    """The return type of a method without an annotation is inferred; its entity is not known before."""

    def root(leaf: Leaf) -> None:
        leaf.touch().grow(1)

    assert edges_of(root) == {"call Leaf.touch argument", "call Leaf.grow result"}


@pytest.mark.parametrize(
    ("name", "origin"), [("literal", "constant"), ("argument", "argument"), ("built", "computed")]
)
def test_key_decides_what_is_known(name: str, origin: str) -> None:
    """A reference made from a key is known as early as the key."""

    def literal() -> None:
        Leaf("l1").grow(1)

    def argument(text: str) -> None:
        Leaf(text).grow(1)

    def built(text: str) -> None:
        Leaf(f"l-{text}").grow(1)

    functions: dict[str, Callable[..., Any]]
    functions = {"literal": literal, "argument": argument, "built": built}
    assert edges_of(functions[name]) == {f"call Leaf.grow {origin}"}


def test_creation_deletion_and_question() -> None:
    """Creating, deleting and asking are edges; a key that is derived is computed."""

    def root(name: str) -> None:
        if not Leaf.exists(name):
            Leaf.create(name, size=1).grow(1)
        Leaf.create().delete()

    assert edges_of(root) == {
        "exists Leaf.exists argument",
        "create Leaf.create argument perhaps",
        "call Leaf.grow argument perhaps",
        "create Leaf.create computed",
        "delete Leaf.delete computed",
    }


def test_helpers_are_followed_with_what_they_are_given() -> None:
    """A function without annotations acts on the arguments of each call."""

    def root(leaves: list[Leaf], other: Other) -> None:
        grow_all(leaves)
        grow_all(generate(leaves))
        wrapped(grow_all)(leaves)
        pick(leaves[0], 3).touch()

    assert edges_of(root) == {"call Leaf.grow argument loop", "call Leaf.touch argument"}


def test_recursive_helpers_end() -> None:
    """Functions that call each other are read until nothing new is found; they are loops."""

    def root(leaf: Leaf) -> None:
        ping(leaf, 3)

    assert edges_of(root) == {"call Leaf.touch argument loop", "call Leaf.grow argument loop"}


def test_lambdas_and_nested_functions_see_their_surroundings() -> None:
    """A closure is followed where it is called, also by a function of the library."""

    def root(leaf: Leaf, leaves: list[Leaf]) -> list[Leaf]:
        def twice(count: int) -> None:
            for _ in range(count):
                leaf.touch()

        twice(2)
        return sorted(leaves, key=lambda one: one.size)

    assert edges_of(root) == {
        "call Leaf.touch argument loop",
        "read Leaf.size argument loop perhaps",
    }


def test_bound_methods_given_away_are_called() -> None:
    """A method handed to a library function is called by it, any number of times."""

    def root(leaf: Leaf, sizes: list[int]) -> list[int]:
        return list(map(leaf.grow, sizes))

    assert edges_of(root) == {"call Leaf.grow argument loop perhaps"}


def test_collections_built_on_the_way_keep_their_elements() -> None:
    """Values that are appended, grouped or chained keep their types."""

    def root(first: Leaf, second: Other) -> None:
        kept = []
        groups: defaultdict[str, list[Other]] = defaultdict(list)
        kept.append(first)
        groups["x"].append(second)
        for leaf in itertools.chain(kept, kept):
            leaf.grow(1)
        for group in groups.values():
            for other in group:
                other.shrink(1)

    assert edges_of(root) == {"call Leaf.grow argument loop", "call Other.shrink argument loop"}


def test_plain_classes_carry_references() -> None:
    """Fields of dataclasses and named tuples are typed; methods of plain classes are followed."""

    def root(basket: Basket, pair: Any) -> None:
        basket.shake()
        if basket.other is not None:
            basket.other.shrink(1)
        Sums(basket.leaves[0]).leaf.touch()
        for one in Pair(basket.leaves[0], basket.leaves[1]):
            one.touch()
        SINGLETON.go(basket.leaves[0])

    assert edges_of(root) >= {
        "call Leaf.grow argument loop",
        "call Other.shrink argument perhaps",
        "call Leaf.touch argument",
        "call Leaf.grow argument",
    }


def test_static_and_class_methods_and_properties() -> None:
    """Static and class methods are followed like functions; a property is a call."""

    def root(leaf: Leaf) -> int:
        Leaf._both(leaf, leaf)
        leaf._both(leaf, leaf)
        return Leaf._named("x").double

    assert edges_of(root) == {"call Leaf.grow argument", "call Leaf.double constant"}


def test_inherited_methods_are_methods_of_the_entity() -> None:
    """`super()` leads along the entity's own order of classes."""
    plan = analyze_app(App("test", Leaf, Derived))
    found = {shown(edge) for edge in plan.edges if edge.source.text == "Derived.go"}
    assert found == {"call Leaf.touch argument", "call Leaf.grow argument"}


def test_functions_of_the_application_are_operators() -> None:
    """A @transactional function is called, not followed."""

    def root(leaf: Leaf) -> None:
        service(leaf)

    assert edges_of(root) == {"call service constant"}


def test_parameters_are_shown_as_in_source() -> None:
    """With the stars of those that take the other arguments."""

    @transactional
    def pour(into: str, *leaves: Leaf, **amounts: int) -> None: ...

    pouring = analyze_app(App("test", Leaf, Other, pour))
    assert "pour(into: str, *leaves: Leaf, **amounts: int) -> None" in plan_text(pouring)


def test_what_follows_an_early_return_is_conditional() -> None:
    """After `return` or `continue` in a branch the rest may not happen; after `raise` it does."""

    def root(leaf: Leaf, names: list[str]) -> None:
        if not names:
            raise ValueError(names)
        leaf.touch()
        for name in names:
            if name == "":
                continue
            Leaf(name).grow(1)
        leaf.grow(2)
        if len(names) > 1:
            return
        leaf.grow(3)

    assert edges_of(root) == {
        "call Leaf.touch argument",
        "call Leaf.grow argument loop perhaps",
        "call Leaf.grow argument",
        "call Leaf.grow argument perhaps",
    }


def test_every_statement_is_read() -> None:
    """`try`, `with`, `while`, `match`, conditional expressions and walruses hide nothing."""

    def root(leaf: Leaf, other: Other, *, more: bool) -> None:
        with savepoint():
            leaf.grow(1)
        try:
            leaf.touch()
        except ValueError:
            leaf.notes.append("failed")
        finally:
            leaf.size = 3
        while more and (left := leaf.grow(1)):
            more = left > 3
        match leaf if more else other:
            case Leaf() as it:
                it.twin = None
            case Other() as it:
                it.shrink(1)
        leaf.touch() if more else None

    assert edges_of(root) == {
        "call Leaf.grow argument",
        "call Leaf.touch argument",
        "read Leaf.notes argument perhaps",
        "write Leaf.notes argument perhaps",
        "write Leaf.size argument",
        "call Leaf.grow argument loop perhaps",
        "write Leaf.twin argument perhaps",
        "call Other.shrink argument perhaps",
        "call Leaf.touch argument perhaps",
    }


def test_union_leads_to_each_member() -> None:
    """A receiver that may be one of two entities gives an edge to each that has the method."""

    def root(leaf: Leaf, other: Other, *, flag: bool) -> None:
        chosen = leaf if flag else other
        if isinstance(chosen, Leaf):
            chosen.grow(1)

    assert edges_of(root) == {"call Leaf.grow argument perhaps"}
    assert warnings_of(root) == []


def test_changing_an_attribute_through_a_name_is_a_write() -> None:
    """A list that came out of an attribute is still that attribute."""

    def root(leaf: Leaf) -> None:
        notes = leaf.notes
        notes.append("one")

    assert edges_of(root) == {"read Leaf.notes argument", "write Leaf.notes argument"}


def test_unknown_receivers_are_reported() -> None:
    """A call that may be an entity's, on something unknown, leads to `?` and is not dropped."""

    def root(thing: Any, callback: Any, name: str, leaf: Leaf) -> None:
        thing.grow(1)
        thing.size = 3
        thing.has_nothing_to_do_with_entities()
        callback(leaf)
        getattr(leaf, name)()

    assert edges_of(root) >= {
        "call ?.grow unknown",
        "write ?.size unknown",
        "call ?.callback unknown",
        "read Leaf.? argument",
    }
    assert not any("nothing" in edge for edge in edges_of(root))


def test_unreadable_source_is_reported() -> None:
    """A function made by `exec` has no source; the plan says so instead of being silent."""
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec("def root(leaf): leaf.grow(1)", space)
    assert edges_of(space["root"]) == {"call ? unknown loop perhaps"}
    assert warnings_of(space["root"]) == ["its source cannot be read: its calls are unknown"]


def test_cycles_are_named() -> None:
    """An entity that calls another of its class is a cycle; calling itself is not."""

    class Node(Entity):
        name: str = key()
        next: "Node | None" = None

        def down(self) -> None:
            self.here()
            if self.next is not None:
                self.next.down()

        def here(self) -> None:
            pass

    assert analyze_app(App("test", Node)).cycles == (("Node", "Node"),)
    assert analyze_app(App("test", Leaf)).cycles == ()


def test_plan_is_the_same_in_every_process() -> None:
    """Processes in which sets iterate in different orders find the same plan."""
    program = (
        "from penstock.dataflow.text import plan_json\n"
        "from tests.unit.dataflow.orchard_app import plan_of, service\n"
        "print(plan_json(plan_of(service)))"
    )
    plans = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=TOP,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert len(plans) == 1
    assert "Leaf" in plans.pop()


def test_library_functions_give_back_what_they_are_given() -> None:
    """A typed object of a library is asked for one of the references it is handed."""

    def root(leaves: list[Leaf]) -> None:
        random().choice(leaves).grow(now().year)

    assert edges_of(root) == {"call Leaf.grow argument"}


def test_published_tables_follow_from_their_class() -> None:
    """The plan leads from an entity class to its table, and from there to the consumers."""
    text = plan_text(analyze_app(shop_and_desk))
    assert "  feeds    stream open_orders" in text
    assert "  feeds    workflow copies" in text
