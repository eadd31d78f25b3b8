"""The frames of a pipelined connection: one WebSocket that carries many requests and their answers.

Each binary message of the WebSocket is one frame: a MessagePack array whose first element names its type.
A client sends `Requests`. A gateway sends one `Welcome`, then `Accepted` and `Answers`, and at most one `Closing` at
the end.
`docs/CLIENTS.md` describes the frames for clients in other languages.
"""

from typing import Final

import msgspec

PIPELINE: Final = "/pipeline"
"""The path of the WebSocket."""

SUBPROTOCOL: Final = "penstock.pipeline.1"
"""The WebSocket subprotocol; its number changes with the frames."""


class Requests(msgspec.Struct, frozen=True, array_like=True, tag="requests"):
    """Requests of a client.

    Attributes:
        requests: The id and the body of each request, as in the log.
        accepted: Whether the gateway says when they are durable.
    """

    requests: list[tuple[str, msgspec.Raw]]
    accepted: bool = False


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """The first frame of a gateway.

    Attributes:
        window: The most requests without an answer.
        frame_bytes_max: The most bytes of a frame from the client.
    """

    window: int
    frame_bytes_max: int


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to one request.

    Attributes:
        request_id: The id that the client gave to the request.
        status: The HTTP status that `POST /call` has for the same outcome; 200 for a result.
        epoch: The epoch of the reply; -1 without a reply.
        data: The result; for every other status, an array of code, class name and message.
        retry_after_s: The least seconds after which to send the request again; 0 if a repetition is
            of no use.
    """

    request_id: str
    status: int
    epoch: int
    data: msgspec.Raw
    retry_after_s: float = 0.0


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag="accepted"):
    """The ids of requests that are durable in the log: they will be processed, also if the connection ends."""

    request_ids: list[str]


class Answers(msgspec.Struct, frozen=True, array_like=True, tag="answers"):
    """Answers of a gateway, in any order."""

    answers: list[Answer]


class Closing(msgspec.Struct, frozen=True, array_like=True, tag="closing"):
    """The last frame of a gateway, which then ends the connection.

    Attributes:
        code: The stable code of the reason; `stopping` asks the client to connect again.
    """

    status: int
    code: str
    message: str


encode_frame: Final = msgspec.msgpack.Encoder().encode
"""Return the bytes of a frame."""

decode_requests: Final = msgspec.msgpack.Decoder(Requests).decode
"""Return the frame of a client; raise `msgspec.MsgspecError` or `RecursionError`."""

decode_from_gateway: Final = msgspec.msgpack.Decoder(Welcome | Accepted | Answers | Closing).decode
"""Return the frame of a gateway; raise `msgspec.MsgspecError`."""
