"""The responses to replies have the bytes that Starlette's own class gives them."""

import pytest
from starlette.responses import Response

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.gateway.responses import ReplyResponse, reply_headers
from penstock.model.reply import Reply

REPLY = Reply(RequestId("k~r1"), Lsn(5), Epoch(12), None, b"")


@pytest.mark.parametrize("request_id", ["", "r1"])
@pytest.mark.parametrize("status", [200, 201, 204, 304, 400])
@pytest.mark.parametrize(
    "content_type", ["text/html", "text/csv; Charset=latin-1", "application/json", "Text/plain"]
)
def test_headers_are_those_of_starlette(request_id: str, status: int, content_type: str) -> None:
    """Headers, their order, status and body agree for each content type, and without a request id or a length."""
    own = ReplyResponse(REPLY, request_id, b"done", status, content_type)
    other = Response(b"done", status, reply_headers(REPLY.epoch, request_id), content_type)
    assert own.raw_headers == other.raw_headers
    assert (own.status_code, own.body) == (other.status_code, other.body)
