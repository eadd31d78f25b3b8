"""The gateway's protocol: each operation of a client as requests and responses; see `operation`.

A `GatewayProtocol` belongs to one client and may be used from many threads. Its only changing state
is the newest epoch that a response has named, so that reads see everything this client has written.
"""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from penstock.base.http import ARROW, EPOCH, EVENTS, JSON, MIN_EPOCH, MSGPACK, media_type_of
from penstock.base.ids import BEFORE_FIRST, Epoch, RequestId
from penstock.base.json_floats import decode_json
from penstock.base.json_keys import json_bytes
from penstock.base.lowering import lower_reply
from penstock.client.atoms import FollowedStream, Page, ReceivedAtoms, Start
from penstock.client.encoding import (
    decode_msgpack,
    encode_json,
    error_of,
    is_msgpack,
    key_text,
    path_of,
    read_answers,
    read_body,
    request_of,
    value_of,
)
from penstock.client.operation import (
    LONG_POLL_S,
    HttpResponse,
    Operation,
    OutgoingRequest,
    Pause,
    RetryPolicy,
    send_with_retries,
)
from penstock.client.results import (
    Change,
    PointAnswer,
    Rows,
    SearchAnswer,
    SqlQuery,
    ViewSearch,
    changes_of,
    object_of,
    point_answer_of,
    require_arrow,
    rows_of,
    search_answer_of,
    table_of,
)
from penstock.client.states import Subscription
from penstock.errors import (
    NoSuchEntity,
    OperationalError,
    PenstockError,
    RequestError,
    TimedOut,
    Unencodable,
)
from penstock.model.application import App
from penstock.model.call import Call, entity_type_of, returns_of
from penstock.model.entity_page import EntityPage, page_filters
from penstock.model.entity_type import EntityType
from penstock.model.running_step import DELAY_MAX

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_NOT_FOUND: Final = 404
_EPOCH_DIGITS_MAX: Final = 18
_LOOK_MIN_S: Final = 0.05
_LOOK_MAX_S: Final = 1.0
_SLACK_S: Final = 1.0
"""The seconds that the network may add to a wait that the server is asked for."""


Outcome = tuple[Any, PenstockError | None]
"""The value of a call, or its error."""

_ENDED: Final = ("answered", "cancelled")
"""The statuses of requests whose outcome is known."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that is durable, and the type of its result."""

    request_id: RequestId
    returns: Any = Any


class GatewayProtocol:
    """The operations of one client.

    Attributes:
        app: The application, if the client knows it.
        policy: How long and how often it tries.
        epoch: The newest epoch that a response has named.
    """

    def __init__(self, app: App | None, policy: RetryPolicy, *, fresh: bool) -> None:
        """`fresh` makes reads wait for the newest epoch that a response has named."""
        self.app = app
        self.policy = policy
        self.epoch = BEFORE_FIRST
        self._fresh = fresh
        self._lock = threading.Lock()

    def call(self, call: Call[Any]) -> Operation[Any]:
        """Perform a call and end with its result.

        Raises:
            RequestError: The call cannot be sent; nothing was sent.
            PenstockError: The transaction was undone, or see `send_with_retries`.
        """
        request = request_of(self.app, call, _id_of(call), "call")
        returns = returns_of(self.app, call)
        # A read has no recorded result that an error could offer to look up.
        named = "" if self._is_read(call) else request.request_id
        response = yield from self._ask(replace(request, wait="timeout", request_id=named))
        return value_of(response, returns)

    def _is_read(self, call: Call[Any]) -> bool:
        if self.app is None or call.request_id is not None or call.stream is not None:
            return False
        return self.app.signature(call.entity, call.method).readonly

    def read_many(self, calls: Sequence[Call[Any]]) -> Operation[list[Outcome]]:
        """Perform `@readonly` calls at one epoch and end with the value or the error of each.

        Raises:
            RequestError: A call cannot be sent, and nothing was sent; or it is not `@readonly`.
            PenstockError: The gateway did not answer; see `send_with_retries`.
        """
        if not calls:
            return []
        content = read_body(self.app, calls)
        media_type = JSON if self.app is None else MSGPACK
        headers = {"Content-Type": media_type, "Accept": media_type, **self._seen()}
        request = OutgoingRequest("POST", "/read", headers, content, wait="timeout")
        return read_answers(self.app, calls, (yield from self._ask(request)))

    def send(self, call: Call[Any], delay_s: float) -> Operation[SentRequest]:
        """Append a call, to be performed once after `delay_s`; end when the request is durable.

        Raises:
            RequestError: The call cannot be sent; nothing was sent.
            OperationalError: See `send_with_retries`.
        """
        if not 0 <= delay_s <= DELAY_MAX.total_seconds():
            raise RequestError(
                f"delay_s must be from 0 to {DELAY_MAX.total_seconds():.0f} ({DELAY_MAX.days} days), not {delay_s!r}"
            )
        request = request_of(self.app, call, _id_of(call), "send")
        returns = returns_of(self.app, call)
        if delay_s:
            request = replace(request, path=f"{request.path}?delay={delay_s:.6f}")
        response = yield from self._ask(request)
        if response.status != 202:
            raise error_of(response)
        return SentRequest(RequestId(request.request_id), returns)

    def reply(self, sent: SentRequest, timeout_s: float | None) -> Operation[Any]:
        """Wait for the result of a request that was sent.

        Raises:
            TimedOut: The result is not there yet.
            RequestError: The gateway knows no request with this id.
            PenstockError: The transaction was undone, or see `send_with_retries`.
        """
        clock = self.policy.clock
        limit_s = self.policy.timeout_s if timeout_s is None else timeout_s
        deadline_s = clock() + limit_s
        look_s = _LOOK_MIN_S
        while True:
            left_s = max(deadline_s - clock(), 0.0)
            status = yield from self._status(sent, min(left_s, LONG_POLL_S), left_s)
            if isinstance(status, HttpResponse):
                return value_of(status, sent.returns)
            if clock() + look_s >= deadline_s:
                raise TimedOut(
                    f"request {sent.request_id} is {status} after {limit_s:g} s; it takes effect "
                    "once; ask for its result again"
                )
            yield Pause(look_s)  # the server may response at once if the request is not due yet
            look_s = min(2 * look_s, _LOOK_MAX_S)

    def cancel(self, request_id: str) -> Operation[None]:
        """Cancel a scheduled request; end when that is durable.

        Raises:
            TooLate: The request was due before.
            RequestError: The gateway knows no request with this id.
            OperationalError: See `send_with_retries`.
        """
        path = path_of("requests", request_id)
        response = yield from self._ask(OutgoingRequest("DELETE", path, {"Accept": JSON}))
        if response.status != 200:
            raise error_of(response)

    def is_answered(self, sent: SentRequest) -> Operation[bool]:
        """Say whether a request has been performed.

        Raises:
            RequestError: The gateway knows no request with this id.
            OperationalError: See `send_with_retries`.
        """
        status = yield from self._status(sent, 0.0, self.policy.timeout_s)
        if isinstance(status, HttpResponse) and status.status == _NOT_FOUND:
            error = error_of(status)
            if not isinstance(error, NoSuchEntity):  # which is the outcome of the request
                raise error
        return isinstance(status, HttpResponse)

    def copy(self, entity: Any) -> Operation[Any]:
        """Read a copy of an entity, from a reference; raises as `get`."""
        entity_type = entity_type_of(self.app, entity)
        values = yield from self.get(entity_type.name, entity)
        return entity_type.copy_of(values)

    def entities(
        self, cls: Any, where: Mapping[str, Any], after: str, limit: int
    ) -> Operation[EntityPage[Any]]:
        """Read a page of the entities of a class.

        Raises:
            RequestError: A filter does not fit the class.
            OperationalError: See `send_with_retries`.
        """
        entity_type = entity_type_of(self.app, cls)
        fields = {**page_filters(where, limit), "limit": str(limit)}
        query = urlencode({**fields, "after": after} if after else fields)
        path = f"{path_of('entities', entity_type.name)}?{query}"
        headers = {"Accept": MSGPACK, **self._seen()}
        response = yield from self._ask(OutgoingRequest("GET", path, headers, wait="timeout"))
        body: dict[str, msgspec.Raw] = value_of(response, dict[str, msgspec.Raw])
        rows = decode_msgpack(body["entities"], list[dict[str, msgspec.Raw]])
        copies = [
            entity_type.copy_of(self._typed(entity_type, row, decode_msgpack)) for row in rows
        ]
        after_text = decode_msgpack(body["after"], str | None)
        return EntityPage(copies, decode_msgpack(body["epoch"], Epoch), after_text)

    def get(self, entity: str, key: object) -> Operation[dict[str, Any]]:
        """Read the attributes of an entity with its key.

        Raises:
            NoSuchEntity: The entity does not exist.
            RequestError: The application has no such class, or the class cannot have such a key.
            OperationalError: See `send_with_retries`.
        """
        path = path_of("entities", entity, key_text(self.app, entity, key))
        headers = {"Accept": JSON if self.app is None else MSGPACK, **self._seen()}
        response = yield from self._ask(OutgoingRequest("GET", path, headers, wait="timeout"))
        return self._attributes(entity, response)

    def subscription(self, entity: str, key: object) -> Subscription[dict[str, Any]]:
        """Return a subscription to an entity, whose states are dictionaries.

        Raises:
            RequestError: The application has no such class, or the class cannot have such a key.
        """
        path = path_of("entities", entity, key_text(self.app, entity, key), "changes")
        return Subscription(path, lambda response: self._attributes(entity, response))

    def subscription_of(self, entity: T) -> Subscription[T]:
        """Return a subscription to an entity, whose states are copies; raises as `subscription`."""
        entity_type = entity_type_of(self.app, entity)
        path = path_of(
            "entities", entity_type.name, key_text(self.app, entity_type.name, entity), "changes"
        )

        def copy_in(response: HttpResponse) -> T:
            copy: T = entity_type.copy_of(self._attributes(entity_type.name, response))
            return copy

        return Subscription(path, copy_in)

    def subscribe(self, subscription: Subscription[Any]) -> Operation[HttpResponse]:
        """Open an event stream with the states that follow; the response has no body yet.

        Raises:
            PenstockError: The gateway refuses it, or see `send_with_retries`.
        """
        # A gateway that is behind the last one would go back in time.
        least = max(self.epoch if self._fresh else BEFORE_FIRST, subscription.epoch)
        seen = {MIN_EPOCH: str(least)} if least >= 0 else {}
        response = yield from self._ask(subscription.request(seen))
        if response.status != 200:
            raise error_of(response)
        is_packed = response.headers.get("content-encoding", "identity") != "identity"
        if is_packed or media_type_of(response.headers.get("content-type", "")) != EVENTS:
            raise OperationalError("the response is no event stream of a gateway")
        subscription.begin(response.headers)
        return response

    def changes(self, entity: str, first: int, last: int | None) -> Operation[list[Change]]:
        """Read the changes of a class's entities in the epochs `first` to `last`.

        Raises:
            RequestError: The application has no such class.
            PenstockError: The journal does not hold these epochs, or see `send_with_retries`.
        """
        path = f"{path_of('entities', entity, 'changes')}?from={first}"
        headers = {"Accept": JSON, **self._seen()}  # unlike lines, it names the types of SQL
        path = path if last is None else f"{path}&to={last}"
        response = yield from self._ask(OutgoingRequest("GET", path, headers))
        if response.status != 200:
            raise error_of(response)
        return changes_of(response)

    def atoms(
        self, stream: FollowedStream, start: Start, *, wait: bool
    ) -> Operation[ReceivedAtoms]:
        """Read atoms of a stream from a number on; with `wait`, wait some seconds for the first one.

        Raises:
            Gone: Retention has removed the first atom.
            PenstockError: The stream is unknown, or see `send_with_retries`.
        """
        wait_s = self.policy.timeout_s / 2 if wait else 0.0
        return stream.atoms_of((yield from self._ask(stream.request(start, wait_s))))

    def page(self, table: FollowedStream, after: str, *, wait: bool) -> Operation[Page[Any]]:
        """Read the page of a published table behind a position; with `wait`, wait some seconds for a change.

        Raises:
            Gone: Retention has removed changes behind the position.
            PenstockError: The table is unknown, or see `send_with_retries`.
        """
        wait_s = self.policy.timeout_s / 2 if wait else 0.0
        return table.page_of((yield from self._ask(table.page_request(after, wait_s))))

    def trace(self, request_id: str) -> Operation[dict[str, Any]]:
        """Read how a request ran.

        Raises:
            PenstockError: No request has this id, or see `send_with_retries`.
        """
        return (yield from self._object(path_of("requests", request_id, "trace")))

    def history(
        self, entity: str, key: object, last: int, first: int | None, end: int | None
    ) -> Operation[dict[str, Any]]:
        """Read the newest changes of an entity.

        Args:
            entity: The name of the class.
            key: The entity's key.
            last: The most changes.
            first: The first epoch; None: the oldest that is held.
            end: The last epoch, which is included; None: the newest.

        Returns:
            An operation that ends with the gateway's JSON object.

        Raises:
            NoSuchEntity: No epoch that is held changed such an entity.
            PenstockError: The application has no such class, or see `send_with_retries`.
        """
        path = path_of("entities", entity, key_text(self.app, entity, key), "history")
        bounds = {"last": last, "from": first, "to": end}
        fields = "&".join(f"{name}={bound}" for name, bound in bounds.items() if bound is not None)
        return (yield from self._object(f"{path}?{fields}"))

    def _object(self, path: str) -> Operation[dict[str, Any]]:
        response = yield from self._ask(OutgoingRequest("GET", path, {"Accept": JSON}))
        if response.status != 200:
            raise error_of(response)
        return object_of(response)

    def rows(self, query: SqlQuery) -> Operation[Rows]:
        """Send a SQL query and end with plain rows.

        Raises:
            PenstockError: The query is refused, or see `send_with_retries`.
        """
        response = yield from self._sql(query, JSON)
        return rows_of(response)

    def table(self, query: SqlQuery) -> Operation["pa.Table"]:
        """Send a SQL query and end with an Arrow table; its schema's metadata names the epoch.

        Raises:
            ConfigError: pyarrow is not installed.
            PenstockError: The query is refused, or see `send_with_retries`.
        """
        require_arrow()
        response = yield from self._sql(query, ARROW)
        return table_of(response, _epoch_of(response))

    def search(self, search: ViewSearch) -> Operation[SearchAnswer]:
        """Search a view.

        Raises:
            RequestError: The view has no search index, or the question is wrong.
            PenstockError: See `send_with_retries`.
        """
        path = f"{path_of('search', search.view)}?{urlencode(search.fields())}"
        headers = {"Accept": JSON, **self._seen()}
        response = yield from self._ask(OutgoingRequest("GET", path, headers, wait="timeout"))
        if response.status != 200:
            raise error_of(response)
        return search_answer_of(response)

    def at(
        self,
        questions: Sequence[Mapping[str, Any]],
        timeout_ms: int,
        *,
        views: Sequence[str] = (),
        session: str = "",
    ) -> Operation[PointAnswer]:
        """Ask several views at one epoch.

        Args:
            views: The views of a session that begins; empty: none begins.
            session: The id of the session that the questions belong to.

        Raises:
            RequestError: A question is wrong.
            Gone: The session has ended.
            PenstockError: See `send_with_retries`.
        """
        body: dict[str, Any] = {"timeout_ms": timeout_ms}
        if views:
            body["views"] = list(views)
        try:
            body["questions"] = [dict(each) for each in questions]
            content = json_bytes(encode_json, lower_reply(body))
        except (Unencodable, TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"the questions cannot be sent: {error}") from error
        headers = {"Accept": JSON, "Content-Type": JSON, **self._seen()}
        path = path_of("at", session) if session else "/at"
        response = yield from self._ask(OutgoingRequest("POST", path, headers, content))
        if response.status != 200:
            raise error_of(response)
        return point_answer_of(response)

    def end_at(self, session: str) -> Operation[None]:
        """End a session; one that has ended already is no error."""
        response = yield from self._ask(OutgoingRequest("DELETE", path_of("at", session)))
        if response.status != 204:
            raise error_of(response)

    def _sql(self, query: SqlQuery, accept: str) -> Operation[HttpResponse]:
        body = query.body(self.epoch if self._fresh else BEFORE_FIRST)
        try:
            content = json_bytes(encode_json, lower_reply(body))
        except (Unencodable, TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"the query's parameters cannot be sent: {error}") from error
        headers = {"Content-Type": JSON, "Accept": accept}
        response = yield from self._ask(OutgoingRequest("POST", "/sql", headers, content))
        if response.status != 200:
            raise error_of(response)
        return response

    def _seen(self) -> dict[str, str]:
        """Return the header that makes a read wait for the newest epoch that was named."""
        return {MIN_EPOCH: str(self.epoch)} if self._fresh and self.epoch >= 0 else {}

    def _status(
        self, sent: SentRequest, wait_s: float, limit_s: float
    ) -> Operation[HttpResponse | str]:
        """Return the reply of a request, or its status: pending or scheduled.

        The reply of a cancelled request is an error, also before its epoch.
        """
        query = f"?wait={wait_s:.3f}" if wait_s else ""
        accept = JSON if self.app is None else MSGPACK
        request = OutgoingRequest(
            "GET", f"{path_of('requests', sent.request_id)}{query}", {"Accept": accept}
        )
        response = yield from self._ask(request, limit_s + _SLACK_S)
        if response.status != 200 or is_msgpack(response):
            return response
        fields: dict[str, msgspec.Raw] = value_of(response, dict[str, msgspec.Raw])
        status: str = msgspec.json.decode(fields["status"], type=str)
        if status not in _ENDED:
            return status
        if "error" in fields:
            return HttpResponse(400, response.headers, b'{"error":%b}' % bytes(fields["error"]))
        return HttpResponse(200, response.headers, bytes(fields["value"]))

    def _attributes(self, entity: str, response: HttpResponse) -> dict[str, Any]:
        """Return an entity's attributes, with their types if the application is known."""
        if self.app is None:
            return dict(value_of(response, dict[str, Any]))
        attributes: dict[str, msgspec.Raw] = value_of(response, dict[str, msgspec.Raw])
        decode = decode_msgpack if is_msgpack(response) else decode_json
        return self._typed(self.app.entity(entity), attributes, decode)

    @staticmethod
    def _typed(
        entity_type: EntityType,
        attributes: Mapping[str, msgspec.Raw],
        decode: Callable[[msgspec.Raw, Any], Any],
    ) -> dict[str, Any]:
        """Return the attributes of an entity as its class declares them."""
        types = {entity_type.key_name: entity_type.key_annotation, **entity_type.attributes}
        try:
            return {name: decode(raw, types.get(name, Any)) for name, raw in attributes.items()}
        except msgspec.ValidationError as error:
            raise Unencodable(
                f"{entity_type.name} differs from its declaration: {error}"
            ) from error

    def _ask(
        self, request: OutgoingRequest, limit_s: float | None = None
    ) -> Operation[HttpResponse]:
        limit_s = self.policy.timeout_s if limit_s is None else limit_s
        deadline_s = self.policy.clock() + limit_s
        response = yield from send_with_retries(request, self.policy, deadline_s, error_of)
        self.note(_epoch_of(response))
        return response

    def note(self, epoch: int) -> None:
        """Note an epoch that a response has named."""
        if epoch <= self.epoch:  # most responses name a known one, and epochs only grow
            return
        with self._lock:
            self.epoch = max(self.epoch, Epoch(epoch))


def _id_of(call: Call[Any]) -> str:
    return uuid.uuid4().hex if call.request_id is None else call.request_id


def _epoch_of(response: HttpResponse) -> Epoch:
    text = response.headers.get(EPOCH.lower(), "")
    good = text.isdecimal() and len(text) <= _EPOCH_DIGITS_MAX
    return Epoch(int(text)) if good else BEFORE_FIRST
