"""The events of one atom on their way through the functions of a workflow.

Each consumer of a node gets events of its own, decoded or computed for it, so no two branches share an object.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from penstock.model.streams.flow import FlowNode, FlowOperator
from penstock.model.streams.stream import Atom
from penstock.model.streams.workflow_plan import WorkflowPlan

Keyed: TypeAlias = tuple[Any, Any]
"""A key, None without keys, and an event."""


class FlowEvents:
    """Computes the events of the nodes of one workflow for one atom.

    Attributes:
        atom: The atom of the source.
        outputs: The keys and encoded events that each task has published, by the name of the task.
    """

    def __init__(self, plan: WorkflowPlan) -> None:
        self._plan = plan
        self.atom: Atom = ()
        self.outputs: dict[str, list[tuple[Any, bytes]]] = {}

    def events(self, node: FlowNode) -> Iterator[Keyed]:
        """Yield the keys and events of a node, in order; the functions before it run now."""
        match node.operator:
            case FlowOperator.SOURCE:
                return self._source()
            case FlowOperator.TASK:
                return self._task(node)
            case FlowOperator.UNION:
                return (pair for branch in node.inputs for pair in self.events(branch))
            case _:
                return self._computed(node)

    def _source(self) -> Iterator[Keyed]:
        decode = self._plan.workflow.source.events.decode
        return ((None, decode(data)) for data in self.atom)

    def _task(self, node: FlowNode) -> Iterator[Keyed]:
        task = self._plan.task_of[node]
        if task.output is None:
            return iter(())
        decode = task.output.decode
        return ((key, decode(data)) for key, data in self.outputs.get(task.name, ()))

    def _computed(self, node: FlowNode) -> Iterator[Keyed]:
        """Yield the events that a function gives."""
        function: Any = node.function
        taken = self.events(node.inputs[0])
        match node.operator:
            case FlowOperator.MAP:
                return ((key, function(event)) for key, event in taken)
            case FlowOperator.FILTER:
                return ((key, event) for key, event in taken if function(event))
            case FlowOperator.FLAT_MAP:
                return ((key, inner) for key, event in taken for inner in function(event))
            case _:
                return ((function(event), event) for _, event in taken)
