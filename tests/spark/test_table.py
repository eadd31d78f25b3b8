"""Tables of the past, streams and changes of a class as Spark DataFrames."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import time, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import ConfigError, QueryError, RequestError, SparkSource, read_table
from penstock.deployment.loading import load_app
from penstock.process.config import Config, ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.session import session_of_context, start_context
from penstock.snapshots.text import DEPTH_MAX
from penstock.sql_view.as_of_query import as_of_queries
from penstock.sql_view.query import Query
from tests.checkout import TOP
from tests.feed_app import app as feed_app
from tests.stream_journal import publish
from tests.unit.sql_view.gallery_app import Written, app, state_of
from tests.unit.sql_view.test_shown_values import deep
from tests.unit.sql_view.test_view_tables import FILLED

DAY_US = 86_400_000_000
pytestmark = [
    pytest.mark.spark,
    pytest.mark.turns(
        3, "runtime", "snapshots", "journal", "model", "history", "state", of="tables in Spark"
    ),
]


HOWTO = (TOP / "docs" / "howto" / "spark.md").read_text()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a gallery's journal of four epochs."""
    folder = tmp_path_factory.mktemp("table")
    with closing(DataDirectory(folder).open_journal_of(app.name)) as journal:
        written = Written(journal)
        written.changes(("Painting", "full", state_of("Painting", **FILLED)))
        written.changes(("Painting", "plain", state_of("Painting")))
        hidden = {**FILLED, "number": 2**64 - 1, "anything": deep(DEPTH_MAX + 1)}
        written.changes(("Painting", "full", state_of("Painting", **hidden)))
        written.changes(("Painting", "plain", None), ("Painting", "full", None))
    return folder


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give a session of the runtime's own kind."""
    scratch = tmp_path_factory.mktemp("scratch")
    start_context("table", Config(scratch, cores=1), scratch)
    session = session_of_context()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session
    session.stop()


def in_sql(data: Path, epoch: int) -> pa.Table:
    with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
        history = as_of_queries(data, app, journal, ViewConfig(memory_mb=256))
        question = Query(f"FROM Painting AS OF EPOCH {epoch}")
        past = question.as_of_statement()
        assert past is not None
        return history.ask(past, question, monotonic() + 30).table


def in_spark(frame: DataFrame) -> list[dict[str, Any]]:
    return [one.as_py() for one in frame.toArrow().to_struct_array()]


def comparable(value: Any) -> Any:
    """Bring a value of Arrow to one form: an interval, and a time of day, as microseconds."""
    found = value
    if isinstance(value, pa.MonthDayNano):
        found = value.days * DAY_US + value.nanoseconds // 1_000
    elif isinstance(value, dict):
        found = {name: comparable(one) for name, one in value.items()}
    elif isinstance(value, list | tuple):
        found = [comparable(one) for one in value]
    elif isinstance(value, timedelta):
        found = value // timedelta(microseconds=1)
    elif isinstance(value, time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        found = seconds * 1_000_000 + value.microsecond
    return found


@pytest.mark.parametrize("epoch", [0, 1, 2, 3])
def test_table_has_the_rows_of_sql(data: Path, session: SparkSession, epoch: int) -> None:
    """A DataFrame at an epoch holds the same as SQL there, of every type, nested ones too."""
    frame = read_table(app, "Painting", as_of=epoch, data=data, session=session)
    found = sorted(in_spark(frame), key=lambda row: str(row["title"]))
    assert comparable(found) == comparable(in_sql(data, epoch).to_pylist())
    assert frame.schema["title"].metadata == {"penstock.epoch": epoch}


def test_types_are_those_of_spark(data: Path, session: SparkSession) -> None:
    """Integers, decimals, intervals and nested types have Spark's own types, wide where need be."""
    types = dict(read_table(app, "Painting", as_of=0, data=data, session=session).dtypes)
    assert types["number"] == "bigint"
    assert types["dried"] == "interval day to second"
    assert types["price"] == "decimal(38,12)"
    assert types["lines"] == "array<struct<_1:bigint,_2:bigint>>"
    assert types["offers"] == "map<string,bigint>"
    wide = dict(read_table(app, "Painting", as_of=2, data=data, session=session).dtypes)
    assert wide["number"] == "decimal(38,0)"
    assert wide["_unshown"] == "string"
    assert types["coats"] == (
        "array<struct<key:struct<_1:bigint,_2:string>,value:interval day to second>>"
    )


def test_what_is_not_there_is_named(data: Path, session: SparkSession, tmp_path: Path) -> None:
    """A class, an epoch or a directory that is not there is refused by its name."""
    with pytest.raises(RequestError, match="Painting"):
        read_table(app, "Paintin", data=data, session=session)
    with pytest.raises(QueryError, match="holds epochs 0 to 3"):
        read_table(app, "Painting", as_of=9, data=data, session=session)
    with pytest.raises(ConfigError, match="no journal"):
        read_table(app, "Painting", data=tmp_path, session=session)


def test_changes_of_a_class_have_the_types_of_its_table(data: Path, session: SparkSession) -> None:
    """The feed of a class shows each change with its epoch, and entities as SQL does, of every type."""
    session.dataSource.register(SparkSource)
    source = session.read.format("penstock").option("app", "tests.unit.sql_view.gallery_app:app")
    source = source.option("data", str(data)).option("entity", "Painting").option("wide", "true")
    rows = sorted(in_spark(source.load()), key=lambda row: (row["epoch"], str(row["key"])))
    assert [(row["epoch"], row["key"], row["kind"]) for row in rows] == [
        (0, "full", "upsert"),
        (1, "plain", "upsert"),
        (2, "full", "upsert"),
        (3, "full", "delete"),
        (3, "plain", "delete"),
    ]
    shown = sorted(in_sql(data, 2).to_pylist(), key=lambda row: str(row["title"]))
    entities = [rows[2]["after"], rows[1]["after"]]
    for entity in entities:
        entity["colours"].sort()  # the elements of a set have no order
    assert comparable(entities) == comparable(shown)


def test_query_reads_a_stream_exactly_once(tmp_path: Path, session: SparkSession) -> None:
    """A query that starts again from its checkpoint continues with the next epoch; nothing comes twice."""
    session.dataSource.register(SparkSource)
    source = session.readStream.format("penstock").option("app", "tests.feed_app:app")
    source = source.option("data", str(tmp_path)).option("stream", "words")
    source = source.option("start", "atom=1").option("maxEpochsPerBatch", "2")
    with closing(DataDirectory(tmp_path).open_journal(feed_app)) as journal:
        published = []
        for round_ in range(2):
            for epoch in range(5):
                words = [f"{round_}-{epoch}-{place}" for place in range(3)]
                publish(journal, {"words": [words[:1], words[1:]]})
                published += words
            writer = source.load().writeStream.format("parquet").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.start(str(tmp_path / "read"))
            assert query.awaitTermination(250)
            rows = in_spark(session.read.parquet(str(tmp_path / "read")))
            in_order = sorted(rows, key=lambda row: (row["atom"], row["place"]))
            assert [row["event"] for row in in_order] == published[1:]


def test_page_runs_from_top_to_bottom(tmp_path: Path, session: SparkSession) -> None:
    """The programs of the how-to page run in a session, over a journal of three epochs."""
    application, *programs = re.findall(r"^```python\n(.*?)^```$", HOWTO, re.MULTILINE | re.DOTALL)
    (tmp_path / "howto_shop.py").write_text(application)
    shop = load_app(str(tmp_path / "howto_shop.py"))
    encode = shop.entities["Item"].encode
    with closing(DataDirectory(tmp_path).open_journal(shop)) as journal:
        written = Written(journal)
        written.changes(("Item", "tea", encode({"name": "tea", "stock": 9})))
        sold = [{"item": "tea", "pieces": 1}, {"item": "cup", "pieces": 1}]
        publish(journal, {"sales": [sold, [{"item": "tea", "pieces": 2}]]})
        written = Written(journal)
        written.changes(("Item", "tea", encode({"name": "tea", "stock": 6})))
    places = {
        "shop.py": tmp_path / "howto_shop.py",
        ".penstock/shop": tmp_path,
        "checkpoints/pieces": tmp_path / "checkpoint",
    }
    program = "\n".join(programs)
    for name, path in places.items():
        assert f'"{name}"' in program
        program = program.replace(f'"{name}"', repr(str(path)))
    exec(program, {"spark": session})
