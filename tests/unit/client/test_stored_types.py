"""One value of each type on its way: call, store, entity, SQL, changes, snapshot, OpenAPI and back."""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from jsonschema_rs import Draft202012Validator

from penstock import Client
from penstock.client.results import python_types
from penstock.gateway.openapi.examples import example_of
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from tests.gateway_thread import RunningGateway
from tests.unit.client.stored_types_app import CASES, KEYS, Values, app
from tests.view_process import view_process

SPEC = "tests.unit.client.stored_types_app:app"
WRITTEN = {name: case.value for name, case in CASES.items()}
NAMES = sorted(CASES)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Run a driver, a gateway and a view; an entity of each class has been written."""
    data = tmp_path_factory.mktemp("types")
    with RunningGateway(SPEC, data) as running, view_process(SPEC, data):
        with Client(running.url, app) as client:
            for entity, (key, _) in KEYS.items():
                getattr(client, entity).create(key)
            client.Sample.create("sample", **WRITTEN)
        yield running


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url, app) as client:
        yield client


@pytest.fixture(scope="module")
def document(gateway: RunningGateway) -> dict[str, Any]:
    """Give the OpenAPI document."""
    answer = httpx.get(f"{gateway.url}/openapi.json", timeout=60).raise_for_status()
    return dict(answer.json())


@pytest.fixture(scope="module")
def entity(client: Client) -> dict[str, Any]:
    """Give the entity with its types."""
    return client.get("Sample", "sample")


@pytest.fixture(scope="module")
def as_json(gateway: RunningGateway) -> dict[str, Any]:
    """Give the entity as JSON."""
    with Client(gateway.url) as plain:
        return plain.get("Sample", "sample")


@pytest.fixture(scope="module")
def argument_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Give the schemas of the attributes as arguments of `create`."""
    operation = document["paths"]["/call/Sample/{key}/create"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return dict(next(one for one in _parts(schema) if "properties" in one)["properties"])


@pytest.fixture(scope="module")
def result_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Give the schemas of the attributes as they are read."""
    operation = document["paths"]["/entities/Sample/{key}"]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return dict(schema["properties"])


@pytest.fixture(scope="module")
def sql_row(client: Client) -> dict[str, Any]:
    """Give the entity's row in SQL."""
    return client.rows("SELECT * FROM Sample WHERE name = 'sample'").dicts()[0]


@pytest.fixture(scope="module")
def change(client: Client) -> dict[str, Any]:
    """Give the entity after its creation, from the feed of changes."""
    after = next(one.after for one in client.changes("Sample", 0) if one.key == "sample")
    assert after is not None
    return after


@pytest.fixture(scope="module")
def snapshot_row(gateway: RunningGateway, client: Client) -> dict[str, Any]:
    """Give the entity's row in the Delta table of a snapshot."""
    directory = DataDirectory(gateway.config.data)
    journal = directory.open_journal(app)
    snapshots = Snapshots(gateway.config.data / "snapshots", journal.identity)
    last = journal.last()
    assert last is not None
    write_next_snapshot(app, journal, snapshots, last.epoch)
    journal.close()
    rows = DeltaTable(f"{snapshots.root}/Sample").to_pyarrow_table()
    return next(row for row in python_types(rows).to_pylist() if row["name"] == "sample")


@pytest.fixture(scope="module")
def arrow_row(client: Client) -> dict[str, Any]:
    """Give the entity's row in an Arrow table."""
    table = client.sql("SELECT * FROM Sample WHERE name = 'sample'")
    return dict(table.to_pylist()[0])


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a schema, or the schemas of which it offers a choice."""
    return list(schema.get("anyOf") or schema.get("oneOf") or [schema])


def text(value: Any) -> str:
    """Return a value with its types as text; the order of a dictionary does not matter."""
    return repr(dict(sorted(value.items())) if type(value) is dict else value)


def in_delta(value: Any) -> Any:
    """Return a value of Arrow as a Delta table has it: times and durations are microseconds."""
    match value:
        case time():
            midnight = datetime(2026, 1, 1, tzinfo=UTC)
            since_midnight = datetime.combine(midnight, value, UTC) - midnight
            stored: Any = since_midnight // timedelta(microseconds=1)
        case timedelta():
            stored = value // timedelta(microseconds=1)
        case pa.MonthDayNano():
            stored = value.days * 86_400_000_000 + value.nanoseconds // 1_000
        case dict():
            stored = {name: in_delta(one) for name, one in value.items()}
        case list():
            stored = [in_delta(one) for one in value]
        case _:
            stored = value
    return stored


def check_schema(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Check that a JSON value fits a schema of a document."""
    whole = {**schema, "components": document["components"]}
    assert [error.message for error in Draft202012Validator(whole).iter_errors(value)] == []


def test_every_attribute_has_a_case() -> None:
    """The table has a value of each attribute, which is not its default."""
    attributes = app.entities["Sample"].attributes
    assert attributes.keys() == CASES.keys()
    assert {
        name for name, value in app.entities["Sample"].defaults.items() if value == WRITTEN[name]
    } == set()


@pytest.mark.parametrize("name", NAMES)
def test_entity_has_the_written_value(name: str, entity: dict[str, Any]) -> None:
    """A typed client reads the value that it wrote, with its types and with its zeros."""
    assert entity[name] == WRITTEN[name]
    assert text(entity[name]) == text(WRITTEN[name])


def test_arguments_and_results_keep_their_values(client: Client) -> None:
    """A record of all types is the same as an argument and as a result."""
    values = Values(**{name: one for name, one in WRITTEN.items() if name != "friend"})
    found = client.same(values)
    for name in vars(values):
        assert text(getattr(found, name)) == text(getattr(values, name))


@pytest.mark.parametrize("name", NAMES)
def test_sql_has_the_value(name: str, sql_row: dict[str, Any], change: dict[str, Any]) -> None:
    """`client.rows` and `client.changes` give the same Python value."""
    assert text(sql_row[name]) == text(CASES[name].sql)
    assert text(change[name]) == text(CASES[name].sql)


@pytest.mark.parametrize("name", NAMES)
def test_snapshot_has_the_value_of_sql(
    name: str, snapshot_row: dict[str, Any], arrow_row: dict[str, Any]
) -> None:
    """Another program that reads the snapshot's Delta table finds the value of `client.sql`."""
    assert snapshot_row[name] == in_delta(arrow_row[name])


@pytest.mark.parametrize("name", NAMES)
def test_schema_describes_the_value(
    name: str, document: dict[str, Any], as_json: dict[str, Any], result_schemas: dict[str, Any]
) -> None:
    """The JSON of the attribute fits its schema in the OpenAPI document."""
    check_schema(document, result_schemas[name], as_json[name])


@pytest.mark.parametrize("name", NAMES)
def test_json_writes_the_value_back(
    name: str,
    gateway: RunningGateway,
    client: Client,
    document: dict[str, Any],
    as_json: dict[str, Any],
    argument_schemas: dict[str, Any],
) -> None:
    """The JSON that was read is a valid argument, and stores the same value."""
    check_schema(document, argument_schemas[name], as_json[name])
    answer = httpx.post(
        f"{gateway.url}/call/Sample/json-{name}/create", json={name: as_json[name]}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    assert text(client.get("Sample", f"json-{name}")[name]) == text(WRITTEN[name])


@pytest.mark.parametrize("name", NAMES)
def test_example_of_a_form_is_accepted(
    name: str,
    gateway: RunningGateway,
    document: dict[str, Any],
    argument_schemas: dict[str, Any],
) -> None:
    """The value that a form shows for an attribute fits its schema and can be sent."""
    value = example_of(document, argument_schemas[name])
    check_schema(document, argument_schemas[name], value)
    answer = httpx.post(
        f"{gateway.url}/call/Sample/form-{name}/create", json={name: value}, timeout=60
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("entity", KEYS)
def test_key_names_the_entity(entity: str, client: Client) -> None:
    """A key of each type finds its entity in calls and reads, and SQL shows it."""
    key, in_sql = KEYS[entity]
    assert getattr(client, entity).exists(key)
    attribute = app.entities[entity].key_name
    assert text(client.get(entity, key)[attribute]) == text(key)
    assert text(client.rows(f"SELECT {attribute} FROM {entity}").rows[0][0]) == text(in_sql)
