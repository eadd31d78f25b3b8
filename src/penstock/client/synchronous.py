"""`Client`: calls a running application over HTTP, as a runtime is called in one's own process.

```python
with Client("http://127.0.0.1:8000", app) as client:
    client.Item.create("i1", price=3)
    assert client.Item("i1").add(5) == "Item: i1 stock updated to: 5"
```

What is said and understood is `conversation`'s; this carries it over `httpx.Client`.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

import httpx

from penstock.base.ids import Epoch, RequestId
from penstock.client.address import Address
from penstock.client.lanes import Lanes
from penstock.client.operation import HttpResponse, Operation, Pause, Send, TransportFailure
from penstock.client.protocol import GatewayProtocol, SentRequest
from penstock.client.results import Change, Query, Rows
from penstock.client.transport import (
    Outcome,
    Settings,
    Verify,
    failure_of,
    repr_of,
    response_of,
    results_of,
    timeout_of,
)
from penstock.errors import PenstockError
from penstock.model.application import App
from penstock.model.call import Call, Calling, Preparing

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Client:
    """Calls an application through its gateways. Safe to use from many threads at once.

    `client.Item("i1").add(5)`, `client.Item.create(…)` and `client.init_items(…)` perform a call
    and return its result or raise its error; each takes a `request_id=` of one's own. With the
    application given, arguments are checked before they are sent, and results and errors have
    their types; without it, everything is as JSON has it.

    Every call carries a request id, so it takes effect once, however often it had to be sent.

    Attributes:
        call: Performs calls; reaches also what shares its name with a method of the client.
        prepare: Writes calls down instead, as data for `send` and `bulk`.
    """

    def __init__(  # noqa: PLR0913 -- each is a setting that one names
        self,
        url: str,
        app: App | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 8,
        connections: int = 16,
        verify: Verify = True,
        fresh: bool = True,
    ) -> None:
        """Check the settings; nothing is sent yet.

        Args:
            url: Of a gateway, or of what stands before several.
            app: The application, for types and checks.
            key: An API key or a token, sent to this URL only.
            timeout_s: For each operation in all, retries and pauses included.
            retries: How often a question is sent again.
            connections: Kept at most; also the calls of one `bulk` that are in flight.
            verify: True trusts the system's authorities, a path those in a PEM file, False anybody.
            fresh: Whether reads see whatever this client has written or seen.

        Raises:
            ConfigError: One of them cannot be used.
        """
        settings = Settings(
            timeout_s=timeout_s,
            retries=retries,
            connections=connections,
            verify=verify,
            fresh=fresh,
        )
        self._address = Address(url, key)
        self._connections = connections
        self._conversation = settings.conversation(app)
        options = settings.options(self._address)
        self._lanes = Lanes(lambda: httpx.Client(**options), connections)
        self.call = Calling(app, self._perform)
        self.prepare = Preparing(app, lambda call: call)

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that this client has heard of; -1 before the first."""
        return self._conversation.epoch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.call, name)

    def __repr__(self) -> str:
        return repr_of("Client", self._address, self._conversation.app)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._lanes.close()

    def send(self, call: Call[T], *, delay_s: float = 0.0) -> "Pending[T]":
        """Have a prepared call performed once, `delay_s` from now; return when that is durable.

        Raises:
            RequestError: There is no such thing to call, or the arguments do not fit.
            RequestConflict: The request id was used with another body.
            OperationalError: The gateway could not take it.
        """
        return self._pending(self._run(self._conversation.send(call, delay_s)))

    @overload
    def pending(self, request_id: str, returns: type[T]) -> "Pending[T]": ...
    @overload
    def pending(self, request_id: str, returns: Any = Any) -> "Pending[Any]": ...
    def pending(self, request_id: str, returns: Any = Any) -> "Pending[Any]":
        """Return a handle on a request that was sent before; `returns` is its result's type."""
        return self._pending(SentRequest(RequestId(request_id), returns))

    @overload
    def bulk(self, calls: Iterable[Call[T]], *, raise_errors: Literal[True] = True) -> list[T]: ...
    @overload
    def bulk(self, calls: Iterable[Call[T]], *, raise_errors: bool) -> list[T | PenstockError]: ...
    def bulk(self, calls: Iterable[Call[Any]], *, raise_errors: bool = True) -> list[Any]:
        """Perform many prepared calls at once and return their results in order.

        They run beside each other, in any order, each a transaction of its own; all have been
        tried when this returns.

        Args:
            calls: What `client.prepare` wrote down.
            raise_errors: Whether the first error is raised; otherwise errors stand among the
                results, in their places.

        Raises:
            PenstockError: The first call that failed, in order, failed with it.
        """
        with ThreadPoolExecutor(self._connections, "penstock-bulk") as threads:
            outcomes = list(threads.map(self._outcome, calls))
        return results_of(outcomes, raise_errors=raise_errors)

    def get(self, entity: str, key: object) -> dict[str, Any]:
        """Return an entity's attributes, its key among them, as of the newest epoch.

        Raises:
            NoSuchEntity: It does not exist.
            RequestError: There is no such class, or no such key.
            OperationalError: The gateway could not answer.
        """
        return self._run(self._conversation.get(entity, key))

    def changes(self, entity: str, from_epoch: int, to_epoch: int | None = None) -> list[Change]:
        """Return what epochs made of the entities of a class, in their order, both included.

        Without `to_epoch` up to the newest.

        Raises:
            RequestError: There is no such class.
            PenstockError: The epochs are not held, or could not be read.
        """
        return self._run(self._conversation.changes(entity, from_epoch, to_epoch))

    def trace(self, request_id: str) -> dict[str, Any]:
        """Return what a request did: its calls, what it read and changed, its place in the order.

        The request is run again for that, which takes seconds; docs/HISTORY.md says what is told.

        Raises:
            PenstockError: There is no such request, or too many ask at once.
        """
        return self._run(self._conversation.trace(request_id))

    def history(
        self,
        entity: str,
        key: object,
        last: int = 20,
        *,
        from_epoch: int | None = None,
        to_epoch: int | None = None,
    ) -> dict[str, Any]:
        """Return the newest changes of an entity, each with the request behind it.

        Of those that the epochs from `from_epoch` to `to_epoch` made, both included; of all held
        ones without.

        Raises:
            NoSuchEntity: Nothing has changed such an entity.
            RequestError: There is no such class, or no such key.
            OperationalError: The gateway could not answer.
        """
        return self._run(self._conversation.history(entity, key, last, from_epoch, to_epoch))

    def rows(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        rows_max: int | None = None,
        as_of: int | datetime | None = None,
    ) -> Rows:
        """Return what a SELECT finds, of one epoch, as plain values.

        Args:
            query: The SELECT.
            parameters: For its `?` by position, or its `$name` by name.
            rows_max: Refuse an answer with more rows.
            as_of: Of this epoch, or of the newest at this instant; None: the newest.

        Raises:
            PenstockError: The query is refused, or could not be answered.
        """
        return self._run(self._conversation.rows(Query(query, parameters, rows_max, as_of)))

    def sql(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        rows_max: int | None = None,
        as_of: int | datetime | None = None,
    ) -> "pa.Table":
        """Return what a SELECT finds as an Arrow table; its metadata has `penstock.epoch`.

        Takes what `rows` takes.

        Raises:
            ConfigError: pyarrow is not installed.
            PenstockError: The query is refused, or could not be answered.
        """
        return self._run(self._conversation.table(Query(query, parameters, rows_max, as_of)))

    def _pending(self, sent: SentRequest) -> "Pending[Any]":
        return Pending(sent, self._conversation, self._run)

    def _perform(self, call: Call[Any]) -> Any:
        return self._run(self._conversation.call(call))

    def _outcome(self, call: Call[Any]) -> Outcome:
        try:
            return self._perform(call), None
        except PenstockError as error:
            return None, error

    def _run(self, talk: Operation[T]) -> T:
        """Carry out a talk's steps to its end."""
        got: HttpResponse | TransportFailure | None = None
        while True:
            try:
                step = talk.send(got)
            except StopIteration as stop:
                result: T = stop.value
                return result
            match step:
                case Send():
                    got = self._sent(step)
                case Pause(seconds=seconds):
                    time.sleep(seconds)
                    got = None

    def _sent(self, step: Send) -> HttpResponse | TransportFailure:
        asked = step.question
        try:
            with self._lanes.lane(step.timeout_s) as http:
                response = http.request(
                    asked.verb,
                    f"{self._address.url}{step.path}",
                    content=asked.content,
                    headers=asked.headers,
                    timeout=timeout_of(step),
                )
        except (httpx.TransportError, httpx.DecodingError) as error:
            return failure_of(error)
        return response_of(response)


class Pending(Generic[T]):
    """A request that is durable and will be performed, once.

    Attributes:
        request_id: By which any client finds it again.
    """

    def __init__(
        self, sent: SentRequest, conversation: GatewayProtocol, run: Callable[[Operation[Any]], Any]
    ) -> None:
        self.request_id = sent.request_id
        self._sent = sent
        self._conversation = conversation
        self._run = run

    def __repr__(self) -> str:
        return f"Pending({self.request_id!r})"

    def done(self) -> bool:
        """Say whether it has been performed, whatever came of it.

        Raises:
            RequestError: Nothing of that id is known.
            OperationalError: The gateway could not answer.
        """
        return bool(self._run(self._conversation.is_answered(self._sent)))

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the result, for the client's `timeout_s` where none is given.

        Raises:
            TimedOut: It is not there yet; ask again.
            RequestError: Nothing of that id is known.
            PenstockError: The transaction was undone, or the gateway could not answer.
        """
        result: T = self._run(self._conversation.reply(self._sent, timeout_s))
        return result
