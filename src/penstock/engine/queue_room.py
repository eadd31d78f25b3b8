"""The room in the queues of a cascade, for requests and workflow steps.

The requests and the steps that wait are counted, and their bytes. A request or a step that causes more than the limits
allow fails, so a cascade that grows without end cannot fill memory and journal. The queues follow from the order of the
log alone, so every run fails the same request.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.engine.limits import Limits
from penstock.errors import LimitExceeded
from penstock.model.running_step import Dispatch, Emission


class QueueRoom:
    """Counts the requests and steps that wait in the running cascade.

    Attributes:
        requests: The number of requests that wait.
        request_bytes: Their bytes.
        steps: The number of workflow steps that wait.
        step_bytes: Their bytes.
    """

    __slots__ = ("_limits", "_subscribers", "request_bytes", "requests", "step_bytes", "steps")

    def __init__(self, limits: Limits, subscribers: Mapping[str, Sequence[Any]]) -> None:
        """Begin with empty queues; `subscribers` has the consumers of each stream."""
        self._limits = limits
        self._subscribers = subscribers
        self.clear()

    def clear(self) -> None:
        """Begin another cascade."""
        self.requests = self.request_bytes = self.steps = self.step_bytes = 0

    def take(self, outbox: Sequence[Emission | Dispatch]) -> None:
        """Count the events and requests that a request has sent; they wait now."""
        requests, request_bytes, steps, step_bytes = self._sizes(outbox)
        self.requests += requests
        self.request_bytes += request_bytes
        self.steps += steps
        self.step_bytes += step_bytes

    def remove(self, body: bytes) -> None:
        """Note that a request waits no more."""
        self.requests -= 1
        self.request_bytes -= len(body)

    def check(self, outbox: Sequence[Emission | Dispatch]) -> None:
        """Check whether there is room for the events and requests of a request.

        Raises:
            LimitExceeded: There is not.
        """
        if len(outbox) == 1 and type(outbox[0]) is Emission:  # nearly always
            if takers := self._subscribers.get(outbox[0].stream):
                count = len(takers)
                self.check_steps(count, count * sum(map(len, outbox[0].events)))
            return
        requests, request_bytes, steps, step_bytes = self._sizes(outbox)
        if requests:
            self._check("requests", self.requests + requests, self.request_bytes + request_bytes)
        if steps:
            self.check_steps(steps, step_bytes)

    def check_steps(self, steps: int, size: int) -> None:
        """Check whether there is room for workflow steps with these bytes; raises as `check`."""
        self._check("workflow steps", self.steps + steps, self.step_bytes + size)

    def _sizes(self, outbox: Sequence[Emission | Dispatch]) -> tuple[int, int, int, int]:
        """Return the number and the bytes of the requests, and of the workflow steps, that wait then."""
        requests = request_bytes = steps = step_bytes = 0
        for item in outbox:
            if isinstance(item, Emission):
                if takers := self._subscribers.get(item.stream):
                    steps += len(takers)
                    step_bytes += len(takers) * sum(map(len, item.events))
            elif not item.delay_us:
                requests += 1
                request_bytes += len(item.body)
        return requests, request_bytes, steps, step_bytes

    def _check(self, what: str, count: int, size: int) -> None:
        limits = self._limits
        if count > limits.cascade_queue:
            exceeded = (
                f"{count} {what} would wait, more than cascade_queue = {limits.cascade_queue}"
            )
        elif size > limits.cascade_queue_bytes:
            exceeded = (
                f"{what} of {size} bytes would wait, more than "
                f"cascade_queue_bytes = {limits.cascade_queue_bytes}"
            )
        else:
            return
        raise LimitExceeded(
            f"the queue of the cascade is full: {exceeded}; send less at once, or the rest from "
            "later requests (send_after)"
        )
