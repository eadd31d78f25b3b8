"""`@route`: the paths of an application, and errors in a pattern."""

import pytest

from penstock import App, DefinitionError, entity, key, readonly, route
from penstock.model.route import SHOW


@entity
@route("/stock", "POST item/{price}", "GET {item_id}", "DELETE /gone/{item_id}", shows=["stock"])
class Item:
    item_id: str = key()
    price: int
    stock: int = 0

    def add(self, amount: int) -> int:
        self.stock += amount
        return self.stock

    @readonly
    def cost(self, pieces: int) -> int:
        return self.price * pieces

    @route("POST /count/{item_id}", "PUT /count/{item_id}/{amount}", status=201, refused=422)
    def count(self, amount: int) -> None:
        self.stock = amount


@route("POST /fill/{count}")
def fill(count: int, price: int = 1) -> int:
    return count * price


def paths(app: App) -> dict[str, tuple[str, str]]:
    return {f"{one.verb} {one.path}": (one.entity, one.method) for one in app.routes}


def test_every_pattern_is_a_route() -> None:
    """A class is served below its place, a method and a function at their own paths."""
    assert paths(App("routed", Item, fill)) == {
        "POST /stock/add/{item_id}/{amount}": ("Item", "add"),
        "GET /stock/cost/{item_id}/{pieces}": ("Item", "cost"),
        "POST /stock/item/{price}": ("Item", "create"),
        "GET /stock/{item_id}": ("Item", SHOW),
        "DELETE /gone/{item_id}": ("Item", "delete"),
        "POST /count/{item_id}": ("Item", "count"),
        "PUT /count/{item_id}/{amount}": ("Item", "count"),
        "POST /fill/{count}": ("", "fill"),
    }


def test_route_knows_key_names_and_statuses() -> None:
    """The arguments in a path, the name of the key, and the form of an answer."""
    routes = {one.path: one for one in App("routed", Item, fill).routes}
    counted = routes["/count/{item_id}/{amount}"]
    assert (counted.key, counted.names) == ("item_id", ("item_id", "amount"))
    assert (counted.status, counted.refused, counted.shows) == (201, 422, ())
    assert routes["/stock/{item_id}"].shows == ("stock",)
    assert (routes["/fill/{count}"].key, routes["/fill/{count}"].names) == ("", ("count",))


def test_function_with_a_route_is_transactional() -> None:
    """`@route` on a function makes it a service."""
    assert App("routed", fill).functions.keys() == {"fill"}


WRONG = [
    ("FETCH /a/{item_id}", "the verb is one of GET"),
    ("POST a/{item_id}", "a path starts with a slash"),
    ("POST /a/{item_id}/{amuont}", "Item.add has no amuont; there are item_id, amount"),
    ("POST /a/{amount}", "does not say which Item: name {item_id} in it"),
    ("POST /a/{item_id}/{item_id}", "item_id is named twice"),
    ("POST /a/x{item_id}", "'x{item_id}' is neither a name in braces nor plain text"),
    ("POST /a//{item_id}", "'' is neither a name in braces nor plain text"),
    ("GET /a/{item_id}", "Item.add may change something; mark it @readonly, or use POST"),
    ("POST /call/{item_id}", "/call is the gateway's own"),
    ("POST /{item_id}", "/{item_id} is the gateway's own"),
    ("POST /at/{item_id}", "POST /at/{item_id} is the gateway's own; choose another path"),
]


@pytest.mark.parametrize(("pattern", "complaint"), WRONG, ids=[one for one, _ in WRONG])
def test_wrong_pattern_is_named(pattern: str, complaint: str) -> None:
    """A route that cannot be served is reported when the application is built, with the line."""

    @entity
    class Item:
        item_id: str = key()
        stock: int = 0

        @route(pattern)
        def add(self, amount: int) -> None:
            self.stock += amount

    with pytest.raises(DefinitionError) as caught:
        App("wrong", Item)
    assert complaint in str(caught.value)
    assert "test_routes.py:" in str(caught.value)


def test_get_of_a_function_wants_readonly() -> None:
    """A function that is not `@readonly` is refused at GET by its line; one that is, is served."""

    @route("GET /charge/{amount}")
    def charge(amount: int) -> int:
        return amount

    @route("GET /quote/{amount}")
    @readonly
    def quote(amount: int) -> int:
        return amount

    with pytest.raises(DefinitionError, match=r"test_routes\.py:\d+: GET /charge/.* or use POST"):
        App("wrong", charge, quote)
    assert paths(App("right", quote)) == {"GET /quote/{amount}": ("", "quote")}


def test_wrong_pattern_of_a_class_is_named() -> None:
    """A class answers five verbs, and shows attributes that it has."""

    @entity
    @route("HEAD /a/{item_id}", "GET /b/{item_id}", shows=["colour"])
    class Item:
        item_id: str = key()

    with pytest.raises(DefinitionError) as caught:
        App("wrong", Item)
    assert "a class answers POST, PUT, PATCH, GET, DELETE" in str(caught.value)
    assert "there is no attribute colour to show; there are item_id" in str(caught.value)


def test_taken_path_is_refused() -> None:
    """Two routes of one verb and shape are ambiguous, so the error names both."""

    @route("POST /fill/{amount}")
    def again(amount: int) -> int:
        return amount

    with pytest.raises(DefinitionError, match=r"POST /fill/\{amount\} is taken by .*test_routes"):
        App("wrong", fill, again)
