"""`ReaderChannel`: the messages between a gateway and one of its readers, over a socket."""

import asyncio

from penstock.runtime.reads.messages import (
    LENGTH_BYTES,
    Encoding,
    Message,
    Question,
    Upcasting,
    decode_message,
    framed,
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ReaderChannel:
    """The gateway's end of the socket of one reader.

    Attributes:
        pid: The process id of the reader.
        nursery: The process id of the nursery that has forked it.
    """

    def __init__(self, pid: int, nursery: int, streams: Streams, bytes_max: int) -> None:
        """Take an open connection.

        Args:
            bytes_max: The most bytes of a message.
        """
        self.pid = pid
        self.nursery = nursery
        self._reader, self._writer = streams
        self._bytes_max = bytes_max

    def send(self, question: Question | Encoding | Upcasting) -> None:
        """Send a question without waiting."""
        self._writer.write(framed(question))

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            EOFError: The reader has died.
            OSError: The connection is broken.
            ValueError: A handler has written to the reader's socket.
        """
        length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES))
        if length > self._bytes_max:
            raise ValueError(f"a message of {length} bytes")
        return decode_message(await self._reader.readexactly(length))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()
