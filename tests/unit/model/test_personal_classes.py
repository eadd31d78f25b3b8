"""Personal classes behave as other classes, and their rows are encrypted."""

from datetime import timedelta

import pytest

from penstock import App, Entity, NoSuchEntity, RequestError, entity, key, savepoint, send_after
from penstock.base.ids import EntityKey
from penstock.model.request import decode_request
from penstock.model.schema_version import first_version
from penstock.model.sealed_value import subject_of
from penstock.model.versions.schema_change import change_of
from penstock.testing import Kit


class User(Entity, personal=True):
    """A person."""

    number: int = key()
    name: str
    friend: "User | None" = None

    def rename(self, name: str) -> None:
        """Try a name in a block that is undone, and then take another one."""
        try:
            with savepoint():
                self.name = "undone"
                raise LookupError
        except LookupError:
            self.name = name

    def rename_tomorrow(self, name: str) -> None:
        """Take a name a day later."""
        send_after(timedelta(days=1), User.rename, self, name)

    def remove(self) -> None:
        """Delete this person."""
        self.delete()


class Post(Entity):
    """A post, which is not personal."""

    post_id: str = key()
    author: User

    def invite(self, guests: dict[str, list[User]], note: str) -> str:
        """Ask persons."""
        return f"{note}: {', '.join(guest.name for guest in guests['here'])}"

    def greeting(self) -> str:
        """Read the author."""
        return f"hello {self.author.name}"


app = App("persons", User, Post)


def test_personal_entities_behave_as_others() -> None:
    """They are created, changed, undone, read by others, compared and deleted."""
    kit = Kit(app)
    kit.call.User.create(1, name="Ada of the rows")
    kit.call.Post.create("p", author=User(1))
    kit.call(User.rename, User(1), "Ada of the changes")
    assert kit.call(Post.greeting, Post("p")) == "hello Ada of the changes"
    row = kit.runtime.state[EntityKey("User/1")]
    assert b"Ada" not in row
    kit.call(User.rename, User(1), "Ada of the changes")
    assert kit.runtime.state[EntityKey("User/1")] == row
    assert kit.entity("User", 1) == {"number": 1, "name": "Ada of the changes", "friend": None}
    kit.call(User.remove, User(1))
    with pytest.raises(NoSuchEntity):
        kit.call(Post.greeting, Post("p"))


def test_arguments_of_a_request_to_a_person_are_encrypted() -> None:
    """Also those of a request whose argument is a person; other requests stay readable."""
    kit = Kit(app)
    named, _ = app.request("User", 1, "rename", ("Ada Lovelace",))
    created, _ = app.request("Post", "p", "create", (), {"author": User(1)})
    other, _ = app.request("Post", "p", "greeting")
    assert b"Lovelace" not in named
    assert b"author" not in created
    assert b"greeting" in other
    assert kit.runtime.app is app


def test_persons_inside_of_an_argument_make_it_personal() -> None:
    """The subject is the same whatever the order; the request and its reply are readable until it is erased."""
    kit = Kit(app)
    for number in (2, 1):
        kit.call.User.create(number, name=f"Ada {number}")
    kit.call.Post.create("p", author=User(1))
    guests = [User(2), User(1)]
    bodies = {
        app.request("Post", "p", "invite", ({"here": listed, "there": []}, "to Lovelace"))[0]
        for listed in (guests, guests[::-1])
    }
    subjects = {subject_of(bytes(decode_request(body).positional)) for body in bodies}
    assert subjects == {"User/1"}
    assert not any(b"Lovelace" in body for body in bodies)
    assert kit.call(Post.invite, Post("p"), {"here": guests}, "come") == "come: Ada 2, Ada 1"
    free, _ = app.request("Post", "p", "invite", ({"here": []}, "to Lovelace"))
    assert b"Lovelace" in free


def test_creation_from_outside_needs_a_key() -> None:
    """A key that the creation would derive is not known when the arguments are encrypted."""
    Kit(app)
    with pytest.raises(RequestError, match="needs its key"):
        app.request("User", None, "create", (), {"name": "Ada"})


def test_kit_erases_a_person() -> None:
    """The person is gone, a scheduled request about it fails, and the same key serves another person."""
    kit = Kit(app)
    for number in (1, 2):
        kit.call.User.create(number, name=f"person {number}")
    kit.call.Post.create("p", author=User(1))
    kit.call(User.rename_tomorrow, User(1), "a former name")
    kit.erase("User", 1)
    assert list(kit.entities("User")) == [2]
    with pytest.raises(NoSuchEntity):
        kit.call(Post.greeting, Post("p"))
    kit.call.User.create(1, name="another person")
    kit.clock.advance(timedelta(days=2))
    kit.settle()
    assert kit.entities("User")[1]["name"] == "another person"
    kit.erase("User", 1)
    with pytest.raises(RequestError, match="not a personal class"):
        kit.erase("Post", "p")
    with pytest.raises(RequestError, match="Usr"):
        kit.erase("Usr", 1)


def test_class_becomes_personal_and_stays_personal() -> None:
    """Rows of the time before are read; a class that is not personal any more is refused."""

    @entity
    class Open:
        name_id: str = key()
        name: str

    @entity(personal=True)
    class Closed:
        name_id: str = key()
        name: str

    Open.__name__ = Closed.__name__ = "Customer"
    was, now = Open.__reference__, Closed.__reference__  # type: ignore[attr-defined]
    was.name = was.stored_name = now.name = now.stored_name = "Customer"
    was.prefix = now.prefix = "Customer/"
    App("open", Open)
    kit = Kit(App("closed", Closed))
    first = first_version(was.shape, was.attributes, 0, {})
    change = change_of([first], now, 5)
    assert change is not None
    assert change.refusals == []
    assert change.changes == ["the class is personal: what is stored from now on is encrypted"]
    row = was.encode({"name_id": "ada", "name": "Ada"})
    now.learn([first, change.version])
    assert now.decode("ada", row) == {"name_id": "ada", "name": "Ada"}
    sealed = now.present("ada", row)
    assert b"Ada" not in sealed
    assert now.decode("ada", sealed)["name"] == "Ada"
    kit.runtime.state[EntityKey("Customer/ada")] = row
    assert kit.entity("Customer", "ada") == {"name_id": "ada", "name": "Ada"}
    back = change_of([first_version(now.shape, now.attributes, 0, {})], was, 5)
    assert back is not None
    assert "keep personal=True" in back.refusals[0]
