"""The OpenAPI document is valid, stable, and true of the gateway."""

import ast
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec import Meta

from penstock import App, entity, key, readonly, route, transactional
from penstock.base.http import STATUS
from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.base.lowering import alike, lower_reply
from penstock.cli.running.foreground import first_request
from penstock.deployment.loading import load_app
from penstock.errors import DefinitionError, RequestError
from penstock.gateway.openapi.document import REFUSED, meanings, openapi_document
from penstock.gateway.openapi.json_schema import SchemaRegistry, media_of
from penstock.gateway.responses import json_of, route_response
from penstock.model.declaration import RESERVED
from penstock.model.reply import Reply
from tests.checkout import TOP
from tests.unit.model.typed_values import Colour, Place, Typed, types

GATEWAY = TOP / "src/penstock/gateway"
EXAMPLES = [
    "examples/shop",
    "examples/talk",
    "examples.talk.initialised:app",
    "examples/bank",
    "tests.counting_app:app",
    "tests.streams.table_app:shop",
]
PRINT = (
    "import sys, msgspec\n"
    "from penstock.gateway.openapi.document import openapi_document\n"
    "from penstock.deployment.loading import load_app\n"
    "sys.stdout.buffer.write(msgspec.json.encode(openapi_document(load_app('examples/shop'))))"
)


@entity
class Plum:
    """A fruit.

    It has a stone.
    """

    plum_id: int = key()
    weight: float = 1.0

    def ripen(self, days: int, *, warm: bool = False) -> float:
        """Get riper.

        Takes longer in the cold.
        """
        return self.weight + days + warm

    @readonly
    @route("GET /plums/{plum_id}/near")
    def near(self, other: "Plum", places: dict[str, Place] | None = None) -> "Plum":
        return other


@transactional
def anything(*rest: int, first: Any = None, **more: str) -> Any:
    return rest, first, more


@route("POST /plums/{x}/pick")
def pick(x: Literal["one", "all"], at: date, how: Colour = Colour.RED) -> None:
    """Pick `one` or all."""


app = App("orchard", Plum, anything, pick)


def made_app(annotations: list[Any]) -> App:
    """Make an application whose one class has attributes and parameters of these types."""

    def take(self: Any, one: Any) -> Any:
        return one

    names = {f"a{index}": one for index, one in enumerate(annotations)}
    take.__annotations__ = {"one": annotations[0], "return": annotations[-1]}
    cls = type("Made", (), {"__annotations__": {"made_id": str, **names}, "made_id": key()})
    cls.take = take  # type: ignore[attr-defined]
    return App("made", entity(cls))


@cache
def smallest() -> dict[str, Any]:
    """Return the document of an application that has nothing of its own."""
    return openapi_document(App("none"))


def judge(document: dict[str, Any]) -> None:
    """Let a public validator look at a document."""
    # It takes half a second, and each process of pytest imports this file.
    from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: PLC0415

    OpenAPIV31SpecValidator(document).validate()


def validate(document: dict[str, Any]) -> None:
    """Let it look at a document without the paths that each has, which are most of it."""
    paths = document["paths"]
    names = [one["operationId"] for path in paths.values() for one in path.values()]
    assert len(set(names)) == len(names)
    own = {path: verbs for path, verbs in paths.items() if verbs != smallest()["paths"].get(path)}
    judge({**document, "paths": own})


def fits(schemas: SchemaRegistry, schema: dict[str, Any], value: Any) -> bool:
    whole = {**schema, "components": {"schemas": schemas.components}}
    return bool(Draft202012Validator(whole).is_valid(value))


def told(value: Any) -> Any:
    """Take a result the way that it takes through journal and gateway."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(lower_reply(value)))


def test_paths_that_every_application_has_are_valid() -> None:
    """A public validator accepts them; `validate` leaves out these and no other."""
    judge(smallest())


@pytest.mark.parametrize("spec", EXAMPLES)
def test_document_of_example_is_valid(spec: str) -> None:
    """A public validator accepts the document of every example."""
    validate(openapi_document(load_app(spec)))


@given(st.lists(types, min_size=6, max_size=6))  # most of a document is the same for all types
@settings(max_examples=5)
def test_document_of_any_application_is_valid(several: list[Typed]) -> None:
    """For an application with any types, a public validator accepts its document."""
    validate(openapi_document(made_app([one.annotation for one in several])))


@given(st.data())
@settings(max_examples=100)
def test_every_answer_fits_its_schema(data: st.DataObject) -> None:
    """The gateway's JSON of a value fits the schema of its annotation."""
    typed = data.draw(types)
    value = data.draw(typed.values)
    schemas = SchemaRegistry(app, {})
    written = json_of(told(value))
    schema = schemas.written(typed.annotation)
    assert fits(schemas, schema, msgspec.json.decode(written)), (schema, written)


def test_names_of_dictionaries_are_numbers_of_64_bits() -> None:
    """The schema of a dictionary allows each number that its names can be, and no other one."""
    schemas = SchemaRegistry(app, {})
    known = (0, 1, 10**18, 2**63, 2**64 - 1, -1, -(2**63))
    for number in (*known, 2**64, 10**20, -(2**63) - 1):
        value = {str(number): True}
        assert fits(schemas, schemas.written(dict[int, bool]), value) is (number in known), number
        assert fits(schemas, schemas.read(dict[int, bool]), value) is (number in known), number


@given(st.data())
@settings(max_examples=60)
def test_what_an_argument_is_written_as_fits_its_schema(data: st.DataObject) -> None:
    """JSON that a call takes for an argument is JSON that the argument's schema allows."""
    typed = data.draw(types)
    text = json_of(told(data.draw(typed.values)))
    made = made_app([typed.annotation])
    signature = made.signature("Made", "take")
    schemas = SchemaRegistry(made, {})
    try:
        signature.of_json(b"[" + text + b"]")
    except RequestError:
        return
    assert fits(schemas, schemas.arguments(signature), [msgspec.json.decode(text)])


@given(st.data())
@settings(max_examples=80)
def test_media_of_an_own_path_are_all_that_it_answers(data: st.DataObject) -> None:
    """A value is answered as text, bytes or JSON as its annotation foretells."""
    typed = data.draw(types)
    reply = Reply(RequestId("r1"), Lsn(0), Epoch(0), None, b"")
    answer = route_response(reply, told(data.draw(typed.values)), "r1", 200, "")
    kinds = {"text/plain": "text", "application/octet-stream": "bytes", "application/json": "json"}
    assert kinds[answer.headers["content-type"].partition(";")[0]] in media_of(typed.annotation)


def test_keys_that_are_no_texts_say_how_they_are_written() -> None:
    """The name in an object is the JSON of the key, whose parts have a schema."""
    schemas = SchemaRegistry(made_app([int]), {})
    names = schemas.read(dict[tuple[str, int], float])["propertyNames"]
    assert [part["type"] for part in names["contentSchema"]["prefixItems"]] == ["string", "integer"]
    assert schemas.read(dict[bool, int])["propertyNames"]["enum"] == ["true", "false"]


def test_document_is_the_same_in_every_process() -> None:
    """The order of no set or dictionary of strings shows in the document."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another one than here
    other = subprocess.run(
        [sys.executable, "-c", PRINT],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    ).stdout
    assert other == msgspec.json.encode(openapi_document(load_app("examples/shop")))


def test_every_call_is_a_path_of_its_own() -> None:
    """Each method of each class, and each function, is found at the path where it is served."""
    paths = openapi_document(app)["paths"]
    methods = (*RESERVED, "ripen", "near")
    calls = {f"/call/Plum/{{key}}/{one}" for one in methods} | {"/call/anything", "/call/pick"}
    assert {path for path in paths if path.startswith("/call/")} == calls
    assert {path for path in paths if path.startswith("/send/")} == {
        path.replace("/call/", "/send/") for path in calls
    }


def test_docstrings_are_summary_and_description() -> None:
    """The docstring of a handler is in the document."""
    document = openapi_document(app)
    ripen = document["paths"]["/call/Plum/{key}/ripen"]["post"]
    assert ripen["summary"] == "Get riper."
    assert ripen["description"] == "Takes longer in the cold."
    plum = next(one for one in document["tags"] if one["name"] == "Plum")
    assert plum["description"] == "A fruit.\n\nIt has a stone."


def test_arguments_go_by_position_or_by_name() -> None:
    """A body is an array with the types in order, or an object that names them."""
    body = openapi_document(app)["paths"]["/call/Plum/{key}/ripen"]["post"]["requestBody"]
    position, name = body["content"]["application/json"]["schema"]["oneOf"]
    assert [one["type"] for one in position["prefixItems"]] == ["integer"]
    assert name["properties"]["warm"] == {"type": "boolean", "default": False}
    assert (name["required"], body["required"]) == (["days"], True)


def test_open_parameters_take_more() -> None:
    """`*rest` and `**more` show in both forms of the body."""
    schemas = SchemaRegistry(app, {})
    schema = schemas.arguments(app.signature("", "anything"))
    good: list[Any] = [[], [1, 2, 3], {}, {"first": [1], "x": "y"}]
    assert [fits(schemas, schema, one) for one in good] == [True] * 4
    assert not fits(schemas, schema, ["a"])
    assert not fits(schemas, schema, {"x": 1})


def test_own_paths_are_typed() -> None:
    """An own path has parameters from path, query and body, each with its type."""
    paths = openapi_document(app)["paths"]
    pick_it = paths["/plums/{x}/pick"]["post"]
    assert [(one["name"], one["in"]) for one in pick_it["parameters"]] == [
        ("x", "path"),
        ("at", "query"),
        ("how", "query"),
        ("Idempotency-Key", "header"),
    ]
    near = paths["/plums/{plum_id}/near"]["get"]["parameters"]
    assert near[0]["schema"]["type"] == "string"
    assert [one["required"] for one in near[:3]] == [True, True, False]
    assert list(near[2]["content"]) == ["application/json"]


def test_paths_that_differ_in_names_alone_are_one() -> None:
    """Two verbs at one path are one path, with any names of their parameters."""

    @route("POST /ways/{left}")
    def one_way(left: int) -> int:
        return left

    @route("PUT /ways/{right}")
    def other_way(right: str) -> str:
        return right

    document = openapi_document(App("ways", one_way, other_way))
    item = document["paths"]["/ways/{left}"]
    assert [item[verb]["parameters"][0]["name"] for verb in ("post", "put")] == ["left", "left"]
    validate(document)


def test_operations_have_names_of_their_own() -> None:
    """Paths that look alike without their slashes and braces are told apart."""

    @readonly
    @route("GET /ways/{out}", "GET /ways/out", "GET /ways.out")
    def way(out: int = 0) -> int:
        return out

    document = openapi_document(App("ways", way))
    names = [one["operationId"] for item in document["paths"].values() for one in item.values()]
    assert len(names) == len(set(names))
    validate(document)


def test_classes_of_one_name_are_two_components() -> None:
    """Two dataclasses that share a name do not share a schema."""

    def made(annotation: type) -> Any:
        return dataclass(
            type(
                "Twin",
                (),
                {"__annotations__": {"value": annotation}, "__module__": annotation.__name__},
            )
        )

    schemas = SchemaRegistry(app, {})
    first, second = schemas.read(made(int)), schemas.read(made(str))
    assert first["$ref"] != second["$ref"]
    assert schemas.components["str.Twin"]["properties"]["value"] == {"type": "string"}


def test_security_is_what_the_gateway_wants() -> None:
    """If every caller needs a key, the document says so for every operation."""
    assert {} in openapi_document(app)["security"]
    assert {} not in openapi_document(app, secured=True)["security"]
    assert openapi_document(app)["paths"]["/healthz"]["get"]["security"] == []


def test_version_follows_the_description() -> None:
    """The document's version changes with its content, and with nothing else."""
    one, other = openapi_document(app), openapi_document(app, server_url="https://plums.example")
    assert one["info"]["version"] == other["info"]["version"]
    assert one["info"]["version"] != openapi_document(App("orchard", Plum))["info"]["version"]


def test_every_status_of_an_error_is_described() -> None:
    """The document knows every code of the table, with the status that the gateway gives it."""
    described = meanings()
    assert all(code in described[status] for code, status in STATUS.items())
    responses = openapi_document(app)["components"]["responses"]
    assert {f"Error{status}" for status in described} <= set(responses)


def refusals() -> set[tuple[int, str]]:
    """Return status and code of all that the gateway refuses by itself."""
    found = set()
    for path in GATEWAY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="HttpError" | "error_response"),
                    args=[ast.Constant(value=int(status)), ast.Constant(value=str(code)), *_],
                ):
                    found.add((status, code))
                case _:
                    pass
    return found


def test_every_refusal_is_described() -> None:
    """Refusals before the application is called have the documented status."""
    known = {(status, code) for code, (status, _) in REFUSED.items()}
    known |= {(status, code) for code, status in STATUS.items()}
    assert {(404, "not-found"), (414, "path-too-long")} <= refusals() <= known


def defaulting_app(annotation: Any, default: Any) -> App:
    """Make an application whose attribute, method and function have a default of this type."""

    def take(self: Any, one: Any = default) -> Any: ...

    def take_all(one: Any = default) -> Any: ...

    for function in (take, take_all):
        function.__annotations__ = {"one": annotation}
    names = {
        "__annotations__": {"made_id": str, "one": annotation},
        "made_id": key(),
        "one": default,
    }
    cls = entity(type("Made", (), {**names, "take": take}))
    return App("made", cls, transactional(take_all))


@given(typed=types, data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_default_is_described(typed: Typed, data: st.DataObject) -> None:
    """An application that can be built has a document, whose defaults a call would accept."""
    default = data.draw(typed.values)
    try:
        made = defaulting_app(typed.annotation, default)
    except DefinitionError:  # a default that calls would share, or that is not equal to itself
        return
    document = msgspec.json.decode(msgspec.json.encode(openapi_document(made)))
    create = document["paths"]["/call/Made/{key}/create"]["post"]["requestBody"]
    assert create["content"]
    signature = made.signature("", "take_all")
    described = SchemaRegistry(made, {}).parameter(signature.parameters["one"])
    if "default" in described:
        body = msgspec.json.encode({"one": described["default"]})
        (read,) = signature.of_json(body)[1].values()
        assert alike(default, read)


def test_default_with_keys_that_are_no_texts() -> None:
    """Such a default ended `penstock run`."""
    document = openapi_document(defaulting_app(dict[tuple[str, int], int] | None, None))
    assert msgspec.json.encode(document)

    @entity
    class Board:
        board_id: str = key()
        cells: dict[tuple[str, int], float] = {("a", 1): math.nan}

    schema = SchemaRegistry(App("board", Board), {})
    creation = App("board", Board).signature("Board", "create")
    assert schema.parameter(creation.parameters["cells"])["default"] == {'["a",1]': "NaN"}


def test_constraints_are_described() -> None:
    """A schema has the constraints of `Annotated`, and accepts no field that a record lacks."""

    @dataclass
    class Line:
        sku: Annotated[str, Meta(min_length=2, pattern="^s")]

    @transactional
    def take(
        lines: Annotated[list[Line], Meta(max_length=3)],
        pieces: Annotated[int, Meta(ge=1, title="N")],
    ) -> None: ...

    made = App("lines", take)
    schemas = SchemaRegistry(made, {})
    by_name = schemas.arguments(made.signature("", "take"))["oneOf"][1]["properties"]
    assert by_name["lines"]["maxItems"] == 3
    assert by_name["pieces"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 2**64 - 1,
        "title": "N",
    }
    assert schemas.components["Line"]["properties"]["sku"] == {
        "type": "string",
        "pattern": "^s",
        "minLength": 2,
    }
    assert not fits(schemas, {"$ref": "#/components/schemas/Line"}, {"sku": "sx", "more": 1})


def test_a_docstring_that_is_no_text() -> None:
    """It is left out."""

    @entity
    class Bad:
        __doc__ = 5  # type: ignore[assignment]
        bad_id: str = key()

        def act(self) -> None: ...

        act.__doc__ = 7  # type: ignore[assignment]

    made = App("bad", Bad)
    assert msgspec.json.encode(openapi_document(made))
    assert first_request(made, "http://host").startswith("curl ")
