"""The limits of a transaction; settings use them without the engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one transaction; exceeding a limit undoes that transaction only.

    Attributes:
        time_ms: Wall-clock milliseconds of one handler.
        memory_bytes: Bytes that a handler may allocate on top of the process's own.
        depth: Python call depth inside a handler.
        reply_bytes: Encoded size of a result.
        state_bytes: Encoded size of one entity.
        output_bytes: Encoded size of the result and of all entities that it changed, together.
        entities: The most entities that a transaction may touch.
        cascade_steps: The most requests, and the most workflow steps, of a cascade before the rest becomes the
            work of a later record.
        cascade_queue: The most requests, and the most workflow steps, that may wait in a cascade; the request or the
            step that causes more fails.
        cascade_queue_bytes: The most bytes of the requests, and of the workflow steps, that wait in a cascade.
    """

    time_ms: int = 15_000
    memory_bytes: int = 1 << 30
    depth: int = 900
    reply_bytes: int = 4 << 20
    state_bytes: int = 4 << 20
    output_bytes: int = 64 << 20
    entities: int = 1_000_000
    cascade_steps: int = 10_000
    cascade_queue: int = 1_000_000
    cascade_queue_bytes: int = 64 << 20
