"""Rights per row: `allows(self, principal)` decides who from outside may use an entity."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, Entity, Forbidden, Principal, key, principal, readonly, transactional
from penstock.engine.limits import Limits
from penstock.errors import (
    DefinitionError,
    LimitExceeded,
    NoSuchEntity,
    OutsideTransaction,
    RequestError,
)
from penstock.testing.kit import Kit

SECRET = "ward 7"


class Patient(Entity):
    patient_id: str = key()
    doctor: str
    place: str = SECRET

    def allows(self, principal: Principal) -> bool:
        return principal.id == self.doctor or principal.claims.get("role") == "head"

    def move(self, place: str) -> str:
        self.place = place
        return principal().id

    def hand_over(self, doctor: str) -> None:
        self.doctor = doctor

    @readonly
    def where(self) -> str:
        return self.place


class Ward(Entity):
    name: str = key()

    def move_in(self, patient: Patient) -> str:
        return patient.move(self.name)

    def may_see(self, patient: Patient) -> bool:
        return patient.allows(principal())


@transactional
def sender() -> tuple[str, list[str], dict[str, Any]]:
    known = principal()
    return known.id, sorted(known.scopes), dict(known.claims)


class Odd(Entity):
    """An entity whose right misbehaves."""

    name: str = key()
    count: int = 0

    def allows(self, principal: Principal) -> Any:
        return MISBEHAVE[self.name](self)

    def use(self) -> int:
        return self.count


def raises(error: BaseException) -> Callable[[Odd], bool]:
    def answer(_: Odd) -> bool:
        raise error

    return answer


def changes(odd: Odd) -> bool:
    odd.count += 1
    return True


class Yes:
    def __eq__(self, other: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


MISBEHAVE: dict[str, Callable[[Odd], Any]] = {
    "raises": raises(ValueError(SECRET)),
    "exits": raises(SystemExit(SECRET)),
    "base": raises(BaseException(SECRET)),
    "none": lambda _: None,
    "one": lambda _: 1,
    "yes": lambda _: Yes(),
    "changes": changes,
}

app = App("ward", Patient, Ward, Odd, sender)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app)
    kit.call.Patient.create("p1", doctor="ada")
    kit.call.Ward.create("east")
    return kit


USES: dict[str, Callable[[Any], object]] = {
    "a call": lambda call: call.Patient("p1").move("x"),
    "a read": lambda call: call.Patient("p1").where(),
    "a deletion": lambda call: call.Patient("p1").delete(),
    "an upsert of the row of another": lambda call: call.Patient("p1").upsert(doctor="bob"),
    "a creation for another": lambda call: call.Patient.create("p2", doctor="eve"),
    "an update of the row of another": lambda call: call.Patient("p1").update_or_create(
        doctor="bob"
    ),
    "an update that gives the row away": lambda call: call.Patient("p2").update_or_create(
        doctor="eve"
    ),
    "an upsert for another": lambda call: call.Patient("p2").upsert(doctor="eve"),
}


@pytest.mark.parametrize("use", USES)
def test_who_is_not_allowed_is_refused(kit: Kit, use: str) -> None:
    """The refusal names class and key, shows nothing of the row, and leaves everything as it was."""
    before = kit.entities("Patient")
    with pytest.raises(Forbidden, match=r"^bob may not use Patient 'p[12]'$"):
        USES[use](kit.acting_as("bob"))
    assert kit.entities("Patient") == before


def test_who_is_allowed_uses_the_row(kit: Kit) -> None:
    """The id, and a claim, are enough; the row before a call decides, and the row after a creation."""
    ada, head = kit.acting_as("ada"), kit.acting_as(Principal("@eve", claims={"role": "head"}))
    assert ada.Patient("p1").move("x") == "ada"
    assert head.Patient("p1").where() == "x"
    ada.Patient("p1").hand_over("bob")
    with pytest.raises(Forbidden):
        ada.Patient("p1").where()
    bob = kit.acting_as("bob")
    bob.Patient("p1").upsert(doctor="bob", place="y")
    bob.Patient("p1").update_or_create(place="z")
    assert bob.Patient("p1").where() == "z"
    bob.Patient.create("p3", doctor="bob")
    bob.Patient("p3").delete()
    assert kit.entity("Patient", "p3") is None


def test_the_application_itself_is_not_asked(kit: Kit) -> None:
    """A handler reaches each row, and may ask the right; so does a caller without a principal."""
    bob = kit.acting_as("bob")
    assert bob.Ward("east").move_in(Patient("p1")) == "bob"
    assert bob.Ward("east").may_see(Patient("p1")) is False
    assert kit.call.Patient("p1").where() == "east"
    assert bob.Patient.exists("p1"), "a key is no secret"


def test_copies_are_for_reading(kit: Kit) -> None:
    """`get` and `page` give copies that read as entities do, are references everywhere, and cannot be changed."""
    kit.call.Patient.create("p2", doctor="bob", place="x")
    copy = kit.get(Patient("p1"), acting_as="ada")
    assert (copy.patient_id, copy.doctor, copy, hash(copy)) == (
        "p1",
        "ada",
        Patient("p1"),
        hash(Patient("p1")),
    )
    with pytest.raises(Forbidden, match=r"^bob may not use Patient 'p1'$"):
        kit.get(Patient("p1"), acting_as="bob")
    with pytest.raises(NoSuchEntity):
        kit.get(Patient("p9"))
    with pytest.raises(OutsideTransaction, match="is a copy, so place"):
        copy.place = "y"
    with pytest.raises(OutsideTransaction):
        copy.move("y")
    assert kit.call(copy.move, "y") == ""
    assert kit.call(Ward.move_in, Ward("east"), copy) == ""
    assert (copy.place, kit.get(copy).place) == (SECRET, "east")


def test_pages_of_a_kit(kit: Kit) -> None:
    """A page has the rows that its caller may see, filtered by typed values."""
    for name in ("p3", "p2", "p4"):
        kit.call.Patient.create(name, doctor="ada" if name != "p2" else "bob", place=name)
    page = kit.page(Patient, acting_as="ada", limit=2)
    assert ([each.patient_id for each in page.entities], page.after) == (["p1", "p3"], "p3")
    page = kit.page(Patient, acting_as="ada", limit=2, after="p3")
    assert ([each.patient_id for each in page.entities], page.after) == (["p4"], None)
    assert [each.patient_id for each in kit.page(Patient, where={"place": "p2"}).entities] == ["p2"]
    assert kit.page(Patient, where={"place": "p2"}, acting_as="ada").entities == []
    with pytest.raises(RequestError, match="there is no attribute of Patient 'color'"):
        kit.page(Patient, where={"color": "red"})


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"limit": 0}, "limit=0 is not the size of a page"),
        ({"limit": 1_001}, "limit=1001 is not the size of a page"),
        ({"limit": True}, "limit=True is not the size of a page"),
        ({"where": {"after": "a"}}, "no page is filtered by after"),
        ({"after": "x" * 401}, "Patient: "),
    ],
)
def test_a_kit_refuses_the_pages_that_a_gateway_refuses(
    kit: Kit, question: dict[str, Any], words: str
) -> None:
    """A test finds a wrong size, a wrong position, and the name of a filter that the query string cannot have."""
    with pytest.raises(RequestError, match=words):
        kit.page(Patient, **question)


@pytest.mark.parametrize("name", MISBEHAVE)
def test_only_true_allows(kit: Kit, name: str) -> None:
    """A right that raises, changes the row, or returns anything but True refuses; its text shows nothing of the row."""
    kit.call.Odd.create(name)
    with pytest.raises(Forbidden, match=f"^bob may not use Odd '{name}'; allows ") as caught:
        kit.acting_as("bob").Odd(name).use()
    assert SECRET not in str(caught.value)
    assert kit.entity("Odd", name) == {"name": name, "count": 0}


def test_a_right_is_within_the_limits(kit: Kit) -> None:
    """A right that never ends, or recurses without end, is interrupted like its handler."""

    def endless(odd: Odd) -> bool:
        return endless(odd)

    MISBEHAVE["endless"] = endless
    kit.call.Odd.create("endless")
    with pytest.raises(LimitExceeded, match=r"^recursed deeper"):
        kit.acting_as("bob").Odd("endless").use()
    with pytest.raises(LimitExceeded, match=r"^recursed deeper"):
        kit.get(Odd("endless"), acting_as="bob")
    remedy = r"until it is full, and recursed deeper than depth = \d+; find .*: Odd\.by_owner\(principal\(\)\.id\)$"
    with pytest.raises(LimitExceeded, match=f"^a page of Odd asks allows of each entity {remedy}"):
        kit.page(Odd, acting_as="bob")


def test_a_page_that_takes_too_long_names_its_remedy() -> None:
    """The remedy of a handler, a longer @limit, is none for a page."""
    kit = Kit(app, limits=Limits(time_ms=20))

    def slow(_: Odd) -> bool:
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            pass
        return False

    MISBEHAVE["slow"] = slow
    kit.call.Odd.create("slow")
    with pytest.raises(
        LimitExceeded, match=r"longer than time_ms = 20 of processor time; find"
    ) as told:
        kit.page(Odd, acting_as="bob")
    assert "@limit" not in str(told.value)


def test_principal_has_scopes_and_claims(kit: Kit) -> None:
    """They are part of the request; what the application sends itself has none."""
    caller = Principal("@ada", frozenset({"read", "call"}), {"clinic": 7})
    assert kit.acting_as(caller).sender() == ("@ada", ["call", "read"], {"clinic": 7})
    assert kit.call.sender() == ("", [], {})
    with pytest.raises(TypeError, match=r"principal\.id"):
        assert caller == "@ada"


def test_right_of_another_form_is_refused() -> None:
    """A class that seems to have a right has it, or the application is refused."""

    class Loose(Entity):
        name: str = key()

        def allows(self, amount: int) -> bool:
            return amount > 0

    class Late(Entity):
        name: str = key()

        async def allows(self, principal: Principal) -> bool:
            return True

    class Shared(Entity):
        name: str = key()

        @staticmethod
        def allows(principal: Principal) -> bool:
            return True

    for cls, why in ((Loose, "right per row"), (Late, "async"), (Shared, "right per row")):
        with pytest.raises(DefinitionError, match=why):
            App("odd", cls)


def test_a_right_is_no_handler() -> None:
    """No request can call it."""
    assert "allows" not in app.entities["Patient"].methods
