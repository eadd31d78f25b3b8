"""The schemas of the bodies that every gateway reads and writes, generated from their structs."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.base.deployment_answers import (
    DeploymentReport,
    DeploymentResult,
    ListedDeployment,
    PartitionMove,
    PartitionProposal,
)
from penstock.base.http import ErrorAnswer
from penstock.client.results import Change, Rows
from penstock.deployment.deploy_order import Removal, Rollback
from penstock.gateway.flow.orders import FlowState, PauseOrder
from penstock.gateway.read_bodies import ReadAnswers, ReadBody
from penstock.gateway.response_bodies import (
    CancelledRequest,
    Health,
    Readiness,
    RecentLoad,
    RequestStatus,
    Sent,
)
from penstock.gateway.route import SCHEMAS
from penstock.gateway.streams.stream_bodies import (
    AtomBody,
    AtomsBody,
    FailedAtomBody,
    StreamBody,
    StreamsBody,
)
from penstock.history.trace_document import HistoryDocument, TracedCall, TraceDocument
from penstock.orders.attempts import Attempt, AttemptOrder, Attempts
from penstock.orders.erasure_order import ErasureOrder
from penstock.orders.partitions import PartitionOrder
from penstock.process.erasures import Certificate
from penstock.sql.failed_requests import FailedRequests
from penstock.sql.query_body import QueryBody

ERROR: Final = "PenstockError"
"""The name of the schema of every error's body."""

_PREFIX: Final = "Penstock"
_NAMES: Final[Mapping[str, type]] = {
    ERROR: ErrorAnswer,
    "PenstockSent": Sent,
    "PenstockRequest": RequestStatus,
    "PenstockCancelled": CancelledRequest,
    "PenstockReads": ReadBody,
    "PenstockReadAnswers": ReadAnswers,
    "PenstockQuestion": QueryBody,
    "PenstockRows": Rows,
    "PenstockChange": Change,
    "PenstockCall": TracedCall,
    "PenstockTrace": TraceDocument,
    "PenstockHistory": HistoryDocument,
    "PenstockAtoms": AtomsBody,
    "PenstockAtom": AtomBody,
    "PenstockFailedAtom": FailedAtomBody,
    "PenstockStreams": StreamsBody,
    "PenstockStream": StreamBody,
    "PenstockHealth": Health,
    "PenstockReadiness": Readiness,
    "PenstockLoad": RecentLoad,
    "PenstockDeployment": ListedDeployment,
    "PenstockDeploymentResult": DeploymentResult,
    "PenstockDeploymentReport": DeploymentReport,
    "PenstockRollback": Rollback,
    "PenstockRemoval": Removal,
    "PenstockPartitions": PartitionProposal,
    "PenstockPartitionOrder": PartitionOrder,
    "PenstockPartitionMove": PartitionMove,
    "PenstockCertificate": Certificate,
    "PenstockErasureOrder": ErasureOrder,
    "PenstockFlow": FlowState,
    "PenstockPauseOrder": PauseOrder,
    "PenstockFailed": FailedRequests,
    "PenstockAttemptOrder": AttemptOrder,
    "PenstockAttempt": Attempt,
    "PenstockAttempts": Attempts,
}
"""Names of components; other structs inside these get their own names behind `Penstock`."""


def builtin_schemas() -> dict[str, Any]:
    """Return the schemas by the names of their components, in order."""
    _, schemas = msgspec.json.schema_components(_NAMES.values(), ref_template=SCHEMAS + "{name}")
    names = {struct.__name__: name for name, struct in _NAMES.items()}
    text = msgspec.json.encode(schemas).decode()
    renamed = {
        name: names.get(name, f"{_PREFIX}{name}")
        for name in schemas
        if name in names or f'"{SCHEMAS}{name}"' in text
    }
    return {renamed[name]: _rewritten(schemas[name], renamed) for name in sorted(renamed)}


def _rewritten(schema: Any, renamed: Mapping[str, str]) -> Any:
    """Return a schema with renamed references, without titles and details of docstrings."""
    match schema:
        case {"$ref": str(reference), **rest}:
            name = renamed[reference.removeprefix(SCHEMAS)]
            return {"$ref": SCHEMAS + name, **rest}
        case {"title": _, "description": str(text), "properties": _, **rest}:
            summary = {"description": text.partition("\n\n")[0], "properties": schema["properties"]}
            return _rewritten(rest | summary, renamed)
        case dict():
            return {key: _rewritten(value, renamed) for key, value in schema.items()}
        case list():
            return [_rewritten(item, renamed) for item in schema]
        case _:
            return schema
