"""The gateway's pieces that need no server: statuses, paths, bodies, ids."""

import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from penstock.base.http import STATUS
from penstock.errors import BY_CODE, Corrupt, Overloaded
from penstock.gateway.errors import HttpError, outcome_status, response_of
from penstock.gateway.http_request import HttpRequest, check_depth
from penstock.gateway.request_ids import RequestIds
from penstock.gateway.route import Route, Router


def test_every_error_has_a_status() -> None:
    """The table of statuses has each code of the error tree, and no other."""
    assert STATUS.keys() == BY_CODE.keys()
    assert STATUS["class-changed"] == 409  # of a deployment, which the caller has ordered
    assert outcome_status("config") == 409, (
        "the outcome of a deployment; here it is the server's own"
    )
    assert STATUS["config"] == 500


def test_damage_is_not_told_outside() -> None:
    """An integrity error's message, which names files, stays in the log."""
    response = response_of(Corrupt("part 00001.parquet of epoch 7 is missing"))
    told = json.loads(bytes(response.body))["error"]
    assert (response.status_code, told["code"]) == (500, "corrupt")
    assert "parquet" not in told["message"]


def test_overload_says_when_to_come_again() -> None:
    """429 and 503 carry `Retry-After`."""
    assert response_of(Overloaded("full")).headers["retry-after"] == "1"


async def nothing(_: HttpRequest) -> Response:
    return Response()


async def something(_: HttpRequest) -> Response:
    return Response()


@pytest.fixture
def routing() -> Router:
    routing = Router()
    routing.add(Route("GET", "/items/{key}", "named"), nothing)
    routing.add(Route("GET", "/items/newest", "literal"), something)
    routing.add(Route("POST", "/items/{key}/{method}", "call"), nothing)
    return routing


FOUND = [
    ("GET", b"/items/a", "named", {"key": "a"}),
    ("GET", b"/items/newest", "literal", {}),
    ("GET", b"/items/a%2Fb", "named", {"key": "a/b"}),
    ("GET", b"/items/%C3%A4", "named", {"key": "\N{LATIN SMALL LETTER A WITH DIAERESIS}"}),
    ("HEAD", b"/items/a", "named", {"key": "a"}),
    ("POST", b"/items/newest/add", "call", {"key": "newest", "method": "add"}),
]


@pytest.mark.parametrize(("verb", "path", "kind", "names"), FOUND)
def test_path_is_found(
    routing: Router, verb: str, path: bytes, kind: str, names: dict[str, str]
) -> None:
    """Literal segments win, names match one segment, and a segment is decoded last."""
    found = routing.find(verb, path)
    assert found is not None
    assert (found[0].route_kind, found[1]) == (kind, names)


@pytest.mark.parametrize("path", [b"/", b"/items", b"/items//add", b"/items/a/b/c", b"/nope/a"])
def test_unknown_path_is_not_found(routing: Router, path: bytes) -> None:
    """A path with a segment too few, too many or empty is not found."""
    assert routing.find("GET", path) is None


def simply_found(paths: Sequence[Sequence[str]], segments: Sequence[str]) -> int | None:
    """Return the number of the path that fits, a literal before a name at the first difference."""
    fits = [
        ([own[:1] == "{" for own in path], number)
        for number, path in enumerate(paths)
        if len(path) == len(segments)
        and all(own in (one, "{x}") for own, one in zip(path, segments, strict=True))
    ]
    return min(fits)[1] if fits else None


@given(
    paths=st.lists(
        st.lists(st.sampled_from(["a", "b", "{x}"]), min_size=1, max_size=4),
        max_size=8,
        unique_by=tuple,
    ),
    segments=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4),
)
def test_paths_are_found_as_by_trying_each(paths: list[list[str]], segments: list[str]) -> None:
    """The tree finds the path that a search through all paths finds, with the values of its names."""
    routing = Router()
    for number, path in enumerate(paths):
        named = [f"{{x{at}}}" if own == "{x}" else own for at, own in enumerate(path)]
        routing.add(Route("GET", "/" + "/".join(named), str(number)), nothing)
    found = routing.find("GET", ("/" + "/".join(segments)).encode())
    fit = simply_found(paths, segments)
    if fit is None:
        assert found is None
        return
    names = {f"x{at}": segments[at] for at, own in enumerate(paths[fit]) if own == "{x}"}
    assert found is not None
    assert (found[0].route_kind, found[1]) == (str(fit), names)


REFUSED = [
    ("DELETE", b"/items/a", 405),
    ("GET", b"/items/%FF", 400),
    ("GET", b"/" + b"a" * 9000, 414),
]


@pytest.mark.parametrize(("verb", "path", "status"), REFUSED)
def test_wrong_path_is_refused(routing: Router, verb: str, path: bytes, status: int) -> None:
    """A wrong verb, bytes that are no text, and endless paths have statuses of their own."""
    with pytest.raises(HttpError) as caught:
        routing.find(verb, path)
    assert caught.value.status == status


def test_path_is_served_once(routing: Router) -> None:
    """Two handlers for one verb and path are a mistake, said at the start."""
    with pytest.raises(ValueError, match="has a handler already"):
        routing.add(Route("GET", "/items/{id}", "again"), something)


DEEP = [b"[" * 65, b'{"a":' * 65, b'["]",' * 65, b'["\\"",' * 65]
SHALLOW = [b"[" * 64, b'["' + b"[" * 500 + b'"]', b"[],[]" * 500, b'"' + b'\\"[' * 90_000]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_json_is_refused(text: bytes) -> None:
    """Only nesting counts, not brackets in strings."""
    with pytest.raises(HttpError, match="nested at most 64 deep"):
        check_depth(text, 64)


@pytest.mark.parametrize("text", SHALLOW, ids=range(len(SHALLOW)))
def test_brackets_in_strings_do_not_count(text: bytes) -> None:
    """Flat JSON passes, and a string without an end is read once, not once for each quote."""
    check_depth(text, 64)


def test_ids_differ() -> None:
    """Ids are 128 bits as hexadecimal digits, each another."""
    ids = RequestIds()
    drawn = [ids.draw() for _ in range(2_000)]
    assert len(set(drawn)) == 2_000
    assert all(re.fullmatch(r"[0-9a-f]{32}", one) for one in drawn)
