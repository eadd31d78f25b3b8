"""`spark.readStream.format("penstock")`: a stream or the changes of a class in an analyst's own Spark session.

Register it once for each session, and then read:

    spark.dataSource.register(penstock.SparkSource)
    spark.readStream.format("penstock").option("app", "shop.py").option("stream", "sales").load()

`feed` makes the rows; this module gives it to Spark as a Python data source. An offset is the last epoch that was
read, and the identity of the journal. Epochs never change, so a query that starts again from its checkpoint
gets each row exactly once. Spark calls each method in the process that needs it: the schema and the offsets in a
planner, the rows in workers. Only `FeedOptions` and `Span`s travel between them; each process opens the journal and
imports the application itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.base.ids import Epoch
from penstock.deployment.loading import Location, load, locate
from penstock.errors import ConfigError, Diverged
from penstock.journal.api import Journal, newest_epoch
from penstock.model.application import App, unknown
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.feed import (
    ClassFeed,
    Feed,
    Span,
    Start,
    StreamFeed,
    check_held,
    first_epoch,
    rows_of,
    spans_of,
)

FORMAT: Final = "penstock"
_OPTIONS: Final = ("app", "data", "stream", "entity", "start", "wide", "maxEpochsPerBatch")
_FLAGS: Final = {"true": True, "false": False}
_ATOM: Final = "atom="

Offset = dict[str, Any]
"""The position of a query: `epoch` is the last epoch that was read; `atom` the first atom, at the start only."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The options of a query, checked; it can be pickled.

    Attributes:
        data: The data directory; None is `.penstock` and the name of the application.
        stream: The name of the stream; None for a class.
        entity: The name of the class; None for a stream.
        wide: Whether the columns have the wide types.
        epochs_max: The most epochs in a batch of a streaming query; None for all that exist.
    """

    location: Location
    data: str | None
    stream: str | None
    entity: str | None
    start: Start
    wide: bool
    epochs_max: int | None

    def app(self) -> App:
        """Import the application; once for each process."""
        return load(self.location)

    def feed(self, app: App) -> Feed:
        """Return the feed of the stream or the class."""
        if self.stream is not None:
            return StreamFeed(app, self.stream, wide=self.wide)
        assert self.entity is not None, "there is a stream or a class"
        return ClassFeed(app, self.entity, wide=self.wide)

    def open_journal(self, app: App) -> Journal:
        """Open the journal, which the caller closes."""
        folder = Path(".penstock", app.name) if self.data is None else Path(self.data)
        if DataDirectory(folder).app_name is None:
            raise ConfigError(
                f"there is no journal of {app.name} in {folder.absolute()}; name the data directory of the "
                'application: option("data", DIR)'
            )
        return DataDirectory(folder).open_journal(app)


class SparkSource(DataSource):
    """The data source `penstock`: register it with `spark.dataSource.register(penstock.SparkSource)`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    @cached_property
    def _chosen(self) -> FeedOptions:
        return options_of(self.options)

    def schema(self) -> StructType:
        """Return the columns, which depend on the application.

        Raises:
            ConfigError: An option is wrong, or the application cannot be imported.
            RequestError: The application has no such stream or class.
        """
        feed = self._chosen.feed(self._chosen.app())
        fields = [pa.field(field.name, _shown_type(field.type)) for field in feed.schema]
        return from_arrow_schema(pa.schema(fields))

    def reader(self, schema: StructType) -> "FeedReader":
        """Return the reader of `spark.read`."""
        return FeedReader(self._chosen, schema)

    def streamReader(self, schema: StructType) -> "FeedStreamReader":  # noqa: N802 -- Spark's name
        """Return the reader of `spark.readStream`."""
        return FeedStreamReader(self._chosen, schema)


class SpanPartition(InputPartition):
    """The span of a single task of Spark."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)


class FeedReader(DataSourceReader):
    """Reads the feed from its start to the epoch that is the newest when the query is planned."""

    def __init__(self, chosen: FeedOptions, schema: StructType) -> None:
        self._chosen = chosen
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the spans from the start to the newest epoch."""
        app = self._chosen.app()
        with closing(self._chosen.open_journal(app)) as journal:
            begin = first_epoch(journal, self._chosen.stream, self._chosen.start)
            span = Span(begin.first, newest_epoch(journal), begin.atom)
            if span.last < span.first:
                return []
            return [
                SpanPartition(piece) for piece in spans_of(journal, self._chosen.feed(app), span)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a span, in a worker."""
        return batches_of(self._chosen, self._schema, partition)


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a streaming query, and reads them."""

    def __init__(self, chosen: FeedOptions, schema: StructType) -> None:
        self._chosen = chosen
        self._schema = schema
        self._last: Epoch | None = None
        self._journal: Journal | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Return the offset before the start; a query with a checkpoint does not use it."""
        journal = self._opened()
        begin = first_epoch(journal, self._chosen.stream, self._chosen.start)
        return {"journal": journal.identity, "epoch": begin.first - 1, "atom": begin.atom}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """Return the limit of a batch; Spark has no limit of epochs, so an epoch is a file here."""
        most = self._chosen.epochs_max
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 -- Spark's name
        """Return the offset after the next batch; without a new epoch, it equals `start`."""
        journal = self._opened()
        reached = self._epoch_of(start)
        last = newest_epoch(journal) if self._last is None else self._last
        if last <= reached:
            return start
        check_held(journal, Epoch(reached + 1))
        if isinstance(limit, ReadMaxFiles):
            last = Epoch(min(last, reached + limit.max_files))
        return {"journal": journal.identity, "epoch": int(last)}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Return the newest epoch, for the progress of the query."""
        journal = self._opened()
        return {"journal": journal.identity, "epoch": int(newest_epoch(journal))}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Let the query end with the epoch that is the newest now."""
        self._last = newest_epoch(self._opened())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the spans between two offsets; the same ones give the same rows at any time."""
        reached, last = self._epoch_of(start), self._epoch_of(end)
        if last <= reached:
            return []
        feed = self._chosen.feed(self._chosen.app())
        span = Span(Epoch(reached + 1), last, start.get("atom", 0))
        return [SpanPartition(piece) for piece in spans_of(self._opened(), feed, span)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a span, in a worker."""
        return batches_of(self._chosen, self._schema, partition)

    def stop(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _opened(self) -> Journal:
        """Return the journal, which stays open in the planner, because Spark asks it all the time."""
        if self._journal is None:
            self._journal = self._chosen.open_journal(self._chosen.app())
        return self._journal

    def _epoch_of(self, offset: Offset) -> Epoch:
        journal = self._opened()
        epoch = Epoch(offset["epoch"])
        if offset["journal"] != journal.identity or epoch > newest_epoch(journal):
            raise Diverged(
                f"the checkpoint of the query is of another history than {self._chosen.data or 'the data directory'}: "
                f"it has read epoch {epoch} of journal {offset['journal']}, and this journal is {journal.identity} "
                f"with epoch {newest_epoch(journal)} as its newest; give the query a new checkpoint"
            )
        return epoch


def options_of(given: Mapping[str, str]) -> FeedOptions:
    """Check the options of a query; their names may have any case."""
    names = {name.lower(): name for name in _OPTIONS}
    for name in given:
        if name.lower() not in names:
            raise ConfigError(unknown("option", name, _OPTIONS))
    values = {names[name.lower()]: value for name, value in given.items()}
    if "app" not in values:
        raise ConfigError('name the application as for `penstock run`: option("app", "shop.py")')
    stream, entity = values.get("stream"), values.get("entity")
    if (stream is None) == (entity is None):
        raise ConfigError(
            'name either a stream or a class: option("stream", …) or option("entity", …)'
        )
    data = values.get("data")
    most = values.get("maxEpochsPerBatch")
    if most is not None and not (most.isdecimal() and int(most) > 0):
        raise ConfigError(f"maxEpochsPerBatch is {most!r}; it is a number of epochs from 1 on")
    wide = _FLAGS.get(values.get("wide", "false").lower())
    if wide is None:
        raise ConfigError(f"wide is {values['wide']!r}; it is true or false")
    return FeedOptions(
        location=locate(values["app"]),
        data=None if data is None else str(Path(data).absolute()),
        stream=stream,
        entity=entity,
        start=start_of(values.get("start", "earliest"), is_stream=stream is not None),
        wide=wide,
        epochs_max=None if most is None else int(most),
    )


def start_of(text: str, *, is_stream: bool) -> Start:
    """Return the start in the text of an option."""
    if text in ("earliest", "latest"):
        return Start(latest=text == "latest")
    if text.isdecimal():
        return Start(epoch=int(text))
    number = text.removeprefix(_ATOM)
    if is_stream and number != text and number.isdecimal():
        return Start(atom=int(number))
    atoms = ", or atom=N for the number of an atom" if is_stream else ""
    raise ConfigError(
        f"start is {text!r}; it is earliest, latest, or the number of an epoch{atoms}"
    )


def batches_of(
    chosen: FeedOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition with the types of Spark.

    Args:
        partition: A `SpanPartition`; Spark makes another one when there are no spans, and it has no rows.
    """
    if not isinstance(partition, SpanPartition):
        return
    app = chosen.app()
    target = to_arrow_schema(schema, timezone="UTC")
    with closing(chosen.open_journal(app)) as journal:
        for rows in rows_of(journal, chosen.feed(app), partition.value):
            table = rows.select(target.names)
            stored = pa.schema(
                [pa.field(field.name, _shown_type(field.type)) for field in table.schema]
            )
            yield from table.cast(stored).cast(target).to_batches()


def _shown_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type that Spark gets: a time of day is microseconds since midnight, as in `read_table`."""
    if pa.types.is_time(arrow_type):
        return pa.int64()
    if pa.types.is_struct(arrow_type):
        return pa.struct([pa.field(field.name, _shown_type(field.type)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(_shown_type(arrow_type.key_type), _shown_type(arrow_type.item_type))
    if pa.types.is_list(arrow_type):
        return pa.list_(_shown_type(arrow_type.value_type))
    return arrow_type
