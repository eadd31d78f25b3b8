"""A request of `penstock call` or `penstock append` that is appended to the log of a data directory."""

import sys
import uuid
from contextlib import closing, redirect_stdout
from typing import Any

from penstock.base.ids import ONLY_PARTITION, Lsn, RequestId
from penstock.errors import TimedOut
from penstock.gateway.request_ids import check_stored
from penstock.journal.api import Journal
from penstock.journal.replies import await_reply
from penstock.log.api import Entry
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.call import Call, encoded, readable
from penstock.model.reply import Reply
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.driver_claim import driver_runs
from penstock.runtime.reads.messages import ReadCall
from penstock.runtime.reads.reader import CallReader


def reply_to(
    app: App, settings: Config, call: Call[Any], request_id: str | None, timeout_s: float
) -> Reply:
    """Append a call, or an append to a stream, to the log and return its reply.

    A call of a `@readonly` handler without an id is not appended: it runs over the newest state.

    Args:
        settings: Its settings, which name the data directory.
        call: The call or the append.
        request_id: The id of the request, as the log stores it; None: a new one.
        timeout_s: How long to wait for the reply.

    Raises:
        TimedOut: The reply did not come in time.
    """
    readable(app, call)  # a wrong call changes nothing
    stored = check_stored(request_id or uuid.uuid4().hex)
    data = DataDirectory(settings.data)
    data.check_app(app)
    data.create()
    recorded = request_id is not None or call.stream is not None
    if not recorded and app.signature(call.entity, call.method).readonly:
        return _read(app, settings, stored, call)
    with closing(data.open_journal(app)) as journal:  # it gives the keys of personal data
        body, hint = encoded(app, call)
        entry = Entry(stored, body, hint, wall_clock_us())
        with closing(data.open_log(settings)) as log:
            lsn = log.append([entry])[0]
        if not driver_runs(settings.data):
            from rich.console import Console

            Console(stderr=True).print(
                f"No penstock run is running in {settings.data}. The request is durable "
                f"(position {lsn}, id {stored}) and waits for: penstock run {settings.app}",
                style="yellow",
                highlight=False,
                soft_wrap=True,
            )
        return _await_reply(journal, lsn, stored, timeout_s)


def _read(app: App, settings: Config, request_id: RequestId, call: Call[Any]) -> Reply:
    """Run a `@readonly` call over the newest state, in this process.

    Args:
        call: The call; the text that its handler prints goes to standard error.
    """
    with (
        closing(CallReader(app, settings.data, settings.limits)) as reader,
        redirect_stdout(sys.stderr),
    ):
        return reader.reply(ReadCall(request_id, encoded(app, call)[0]))


def _await_reply(journal: Journal, lsn: Lsn, request_id: RequestId, timeout_s: float) -> Reply:
    """Wait until the journal has the reply to the request at a log position.

    Args:
        timeout_s: How long to wait.

    Raises:
        TimedOut: The reply did not come in time.
    """
    reply = await_reply(journal, (ONLY_PARTITION, lsn), timeout_s)
    if reply is None:
        raise TimedOut(
            f"no reply within {timeout_s:g} s; the request is durable at position {lsn} and "
            f"will be processed; ask again with --request-id {request_id}"
        )
    return reply
