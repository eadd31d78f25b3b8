"""A plan as JSON, for other programs. Keys are the attributes of `penstock.dataflow.graph`.

Besides them each edge has `dynamic`, and the plan has `cycles`, so that a reader need not know how
they follow from the rest.
"""

import msgspec

from penstock.dataflow.graph import Plan
from penstock.dataflow.rates import NO_RATES, Rates


def plan_json(plan: Plan, rates: Rates = NO_RATES) -> str:
    """Return the JSON, indented, with a newline at its end. Equal plans give equal text.

    Measured rates are the attribute `rates`.
    """
    document = msgspec.to_builtins(plan)
    for edge, shown in zip(plan.edges, document["edges"], strict=True):
        shown["dynamic"] = edge.dynamic
    document["cycles"] = plan.cycles
    if rates.over_s:
        document["rates"] = msgspec.to_builtins(rates)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
