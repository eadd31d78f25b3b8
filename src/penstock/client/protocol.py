"""Everything that a client says and understands, as talks; see `talk`.

A `GatewayProtocol` belongs to one client and may be used from many threads: what changes in it is the
newest epoch that it has seen, which makes reads see whatever this client has written.
"""

import threading
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.base.http import ARROW, EPOCH, JSON, MIN_EPOCH, MSGPACK, NDJSON
from penstock.base.ids import BEFORE_FIRST, Epoch, RequestId
from penstock.base.lowering import lower_reply
from penstock.base.schema import decode_reference, refuse
from penstock.client.encoding import (
    error_of,
    is_msgpack,
    key_text,
    path_of,
    request_of,
    value_of,
)
from penstock.client.operation import (
    LONG_POLL_S,
    HttpRequest,
    HttpResponse,
    Operation,
    Pause,
    RetryPolicy,
    send_with_retries,
)
from penstock.client.results import (
    Change,
    Query,
    Rows,
    changes_of,
    object_of,
    require_arrow,
    rows_of,
    table_of,
)
from penstock.errors import RequestError, TimedOut, Unencodable
from penstock.model.application import App
from penstock.model.call import Call, returns_of

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH_DIGITS_MAX: Final = 18
_LOOK_MIN_S: Final = 0.05
_LOOK_MAX_S: Final = 1.0
_SLACK_S: Final = 1.0
"""What the way there and back may add to a wait that the server is asked for."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that is durable, and the type of its result."""

    request_id: RequestId
    returns: Any = Any


class GatewayProtocol:
    """What one client says.

    Attributes:
        app: The application, where the client knows it.
        patience: How long and how often it tries.
        epoch: The newest epoch that an answer has named.
    """

    def __init__(self, app: App | None, patience: RetryPolicy, *, fresh: bool) -> None:
        """`fresh` makes reads wait for the newest epoch seen."""
        self.app = app
        self.patience = patience
        self.epoch = BEFORE_FIRST
        self._fresh = fresh
        self._lock = threading.Lock()

    def call(self, call: Call[Any]) -> Operation[Any]:
        """Perform a call and end with its result.

        Raises:
            RequestError: It cannot be sent; nothing was.
            PenstockError: The transaction was undone, or see `talk.ask`.
        """
        question = request_of(self.app, call, _id_of(call), "call")
        returns = returns_of(self.app, call)
        answer = yield from self._ask(replace(question, wait="timeout"))
        return value_of(answer, returns)

    def send(self, call: Call[Any], delay_s: float) -> Operation[SentRequest]:
        """Have a call performed later, exactly once; end as soon as that is durable.

        Raises:
            RequestError: It cannot be sent; nothing was.
            OperationalError: See `talk.ask`.
        """
        if not delay_s >= 0:
            raise RequestError(f"a delay is 0 seconds or more, not {delay_s!r}")
        question = request_of(self.app, call, _id_of(call), "send")
        returns = returns_of(self.app, call)
        if delay_s:
            question = replace(question, path=f"{question.path}?delay={delay_s:.6f}")
        answer = yield from self._ask(question)
        if answer.status != 202:
            raise error_of(answer)
        return SentRequest(RequestId(question.request_id), returns)

    def reply(self, sent: SentRequest, timeout_s: float | None) -> Operation[Any]:
        """Wait for the result of a request that was sent.

        Raises:
            TimedOut: It is not there yet.
            RequestError: Nothing of that id is known.
            PenstockError: The transaction was undone, or see `talk.ask`.
        """
        clock = self.patience.clock
        limit_s = self.patience.timeout_s if timeout_s is None else timeout_s
        deadline_s = clock() + limit_s
        look_s = _LOOK_MIN_S
        while True:
            left_s = max(deadline_s - clock(), 0.0)
            standing = yield from self._standing(sent, min(left_s, LONG_POLL_S), left_s)
            if isinstance(standing, HttpResponse):
                return value_of(standing, sent.returns)
            if clock() + look_s >= deadline_s:
                raise TimedOut(
                    f"request {sent.request_id} is {standing} after {limit_s:g} s; it takes effect "
                    "once, and its result can be asked for again"
                )
            yield Pause(look_s)  # the server may answer at once where a request is not due yet
            look_s = min(2 * look_s, _LOOK_MAX_S)

    def is_answered(self, sent: SentRequest) -> Operation[bool]:
        """Say whether a request has been performed.

        Raises:
            RequestError: Nothing of that id is known.
            OperationalError: See `talk.ask`.
        """
        standing = yield from self._standing(sent, 0.0, self.patience.timeout_s)
        return isinstance(standing, HttpResponse)

    def get(self, entity: str, key: object) -> Operation[dict[str, Any]]:
        """Read an entity's attributes, its key among them.

        Raises:
            NoSuchEntity: It does not exist.
            RequestError: There is no such class, or no such key.
            OperationalError: See `talk.ask`.
        """
        path = path_of("entities", entity, key_text(self.app, entity, key))
        headers = {"Accept": JSON, **self._seen()}
        answer = yield from self._ask(HttpRequest("GET", path, headers, wait="timeout"))
        return self._attributes(entity, answer)

    def changes(self, entity: str, first: int, last: int | None) -> Operation[list[Change]]:
        """Ask what the epochs from `first` to `last` made of the entities of a class.

        Raises:
            RequestError: There is no such class.
            PenstockError: The epochs are not held, or see `talk.ask`.
        """
        path = f"{path_of('entities', entity, 'changes')}?from={first}"
        headers = {"Accept": NDJSON, **self._seen()}
        asked = path if last is None else f"{path}&to={last}"
        answer = yield from self._ask(HttpRequest("GET", asked, headers))
        if answer.status != 200:
            raise error_of(answer)
        return changes_of(answer)

    def trace(self, request_id: str) -> Operation[dict[str, Any]]:
        """Ask what a request did.

        Raises:
            PenstockError: There is no such request, or see `talk.ask`.
        """
        return (yield from self._past(path_of("requests", request_id, "trace")))

    def history(
        self, entity: str, key: object, last: int, first: int | None, end: int | None
    ) -> Operation[dict[str, Any]]:
        """Ask for the newest changes of an entity, of those in the epochs from `first` to `end`.

        Raises:
            NoSuchEntity: Nothing has changed such an entity.
            PenstockError: There is no such class, or see `talk.ask`.
        """
        path = path_of("entities", entity, key_text(self.app, entity, key), "history")
        bounds = {"last": last, "from": first, "to": end}
        asked = "&".join(f"{name}={one}" for name, one in bounds.items() if one is not None)
        return (yield from self._past(f"{path}?{asked}"))

    def _past(self, path: str) -> Operation[dict[str, Any]]:
        answer = yield from self._ask(HttpRequest("GET", path, {"Accept": JSON}))
        if answer.status != 200:
            raise error_of(answer)
        return object_of(answer)

    def rows(self, query: Query) -> Operation[Rows]:
        """Ask a SQL query and end with plain rows.

        Raises:
            PenstockError: The query is refused, or see `talk.ask`.
        """
        answer = yield from self._sql(query, JSON)
        return rows_of(answer)

    def table(self, query: Query) -> Operation["pa.Table"]:
        """Ask a SQL query and end with an Arrow table, whose schema's metadata names the epoch.

        Raises:
            ConfigError: pyarrow is not installed.
            PenstockError: The query is refused, or see `talk.ask`.
        """
        require_arrow()
        answer = yield from self._sql(query, ARROW)
        return table_of(answer, _epoch_of(answer))

    def _sql(self, query: Query, accept: str) -> Operation[HttpResponse]:
        body = query.body(self.epoch if self._fresh else BEFORE_FIRST)
        try:
            content = msgspec.json.encode(lower_reply(body), enc_hook=refuse)
        except (Unencodable, TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"the query's parameters cannot be sent: {error}") from error
        headers = {"Content-Type": JSON, "Accept": accept}
        answer = yield from self._ask(HttpRequest("POST", "/sql", headers, content))
        if answer.status != 200:
            raise error_of(answer)
        return answer

    def _seen(self) -> dict[str, str]:
        """Return what makes a read wait for the newest epoch seen."""
        return {MIN_EPOCH: str(self.epoch)} if self._fresh and self.epoch >= 0 else {}

    def _standing(
        self, sent: SentRequest, wait_s: float, limit_s: float
    ) -> Operation[HttpResponse | str]:
        """Return the answer that a request has had, or what it is: pending or scheduled."""
        query = f"?wait={wait_s:.3f}" if wait_s else ""
        accept = JSON if self.app is None else MSGPACK
        question = HttpRequest(
            "GET", f"{path_of('requests', sent.request_id)}{query}", {"Accept": accept}
        )
        answer = yield from self._ask(question, limit_s + _SLACK_S)
        if answer.status != 200 or is_msgpack(answer):
            return answer
        told: dict[str, msgspec.Raw] = value_of(answer, dict[str, msgspec.Raw])
        status: str = msgspec.json.decode(told["status"], type=str)
        if status != "answered":
            return status
        if "error" in told:
            return HttpResponse(400, answer.headers, b'{"error":%b}' % bytes(told["error"]))
        return HttpResponse(200, answer.headers, bytes(told["value"]))

    def _attributes(self, entity: str, answer: HttpResponse) -> dict[str, Any]:
        """Give each attribute of an entity its type, where the application is known."""
        if self.app is None:
            return dict(value_of(answer, dict[str, Any]))
        kind = self.app.entities[entity]
        types = {kind.key_name: kind.key_annotation, **kind.attributes}
        found: dict[str, msgspec.Raw] = value_of(answer, dict[str, msgspec.Raw])
        try:
            return {
                name: msgspec.json.decode(raw, type=types.get(name, Any), dec_hook=decode_reference)
                for name, raw in found.items()
            }
        except msgspec.ValidationError as error:
            raise Unencodable(f"{entity} is not what was declared: {error}") from error

    def _ask(self, question: HttpRequest, limit_s: float | None = None) -> Operation[HttpResponse]:
        wanted_s = self.patience.timeout_s if limit_s is None else limit_s
        deadline_s = self.patience.clock() + wanted_s
        answer = yield from send_with_retries(question, self.patience, deadline_s, error_of)
        epoch = _epoch_of(answer)
        with self._lock:
            self.epoch = max(self.epoch, epoch)
        return answer


def _id_of(call: Call[Any]) -> str:
    return uuid.uuid4().hex if call.request_id is None else call.request_id


def _epoch_of(answer: HttpResponse) -> Epoch:
    text = answer.headers.get(EPOCH.lower(), "")
    good = text.isdecimal() and len(text) <= _EPOCH_DIGITS_MAX
    return Epoch(int(text)) if good else BEFORE_FIRST
