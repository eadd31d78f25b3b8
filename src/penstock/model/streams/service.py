"""Services: tasks that only reply to portals, without a stream, without events and without a sink.

A service is a workflow whose source has no atoms and which publishes no stream. So it has state, keys, lines and failures
as each workflow has.
"""

from typing import Any, Final

from penstock.errors import DefinitionError
from penstock.model.declaration import caller_place
from penstock.model.streams.flow import Flow, FlowNode, FlowOperator, Workflow
from penstock.model.streams.portal import Portal
from penstock.model.streams.stream import Stream

_NAME: Final = "nothing"


class Service:
    """A task that replies to portals; a member of an `App`."""

    def __init__(self, workflow: Workflow[Any]) -> None:
        self.workflow = workflow
        self.where = workflow.where

    def __repr__(self) -> str:
        return f"<Service {self.workflow.flow_name}>"


def service(name: str, handler: type[Any], *, exclusive: bool = False) -> Service:
    """Let a task reply to portals, without a stream that it takes and without a stream that it publishes.

    Its state has a key if one of its portals has `key=`; then each question runs under its key. Otherwise the task has
    one state.

    Args:
        name: The name of the workflow: letters, digits, `-` and `_`.
        handler: The class of the task. Methods that are marked with the `reply` of a portal answer; it has no `on_event`.
        exclusive: Let the questions of a key wait while a handler of that key waits for a reply.

    Raises:
        DefinitionError: The handler is no class. `App` reports all other mistakes.
    """
    where = caller_place()
    if not isinstance(handler, type):
        raise DefinitionError([f"{where}: service {name}: {handler!r} is no class"])
    source: Stream[Any] = Stream(_NAME, type(None), where)
    node = FlowNode(FlowOperator.SOURCE, where=where)
    key = _key_of(handler)
    if key is not None:
        node = FlowNode(FlowOperator.KEY, (node,), key, where)
    node = FlowNode(
        FlowOperator.TASK, (node,), handler, where, name=handler.__name__, exclusive=exclusive
    )
    workflow: Workflow[Any] = Flow[Any](name, source, node, where).sink(_NAME, type(None))
    workflow.is_service = True
    return Service(workflow)


def _key_of(handler: type) -> Any:
    """Return the function that gives the key of a request to one of the portals of a class; None if no portal has one."""
    portals = (getattr(getattr(handler, name, None), "__portal__", None) for name in dir(handler))
    keys = (portal.key for portal in portals if isinstance(portal, Portal))
    return next((key for key in keys if key is not None), None)
