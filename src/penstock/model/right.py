"""Rights per row: the method `allows(self, principal: Principal) -> bool` of an entity class.

```python
class Patient(Entity):
    patient_id: str = key()
    doctor: str

    def allows(self, principal: Principal) -> bool:
        return principal.id == self.doctor or principal.claims.get("role") == "head"
```

Promises that a class with a method of this name has either this right or a complaint: no class seems to have a right that
is never asked.
"""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from penstock.model.handler import function_in, readonly
from penstock.model.principal import Principal

RIGHT: Final = "allows"
"""The name of the method."""

Right = Callable[[Any, Principal], object]
"""A right: takes a loaded entity and the caller, and returns True if the caller may use the entity."""

_FORM: Final = "allows(self, principal: Principal) -> bool"


def is_right(name: str, member: Any) -> bool:
    """Say whether a member of an entity class is its right, or looks like it."""
    return name == RIGHT and (function_in(member) is not None or callable(member))


def complaint_of_right(member: Any) -> str:
    """Say why a member with the name of the right cannot be it; empty if it can."""
    why = f"is the name of the right per row: write def {_FORM}, or give the member another name"
    if not isinstance(member, FunctionType):
        return why
    parameters = list(inspect.signature(member).parameters.values())
    if len(parameters) != 2 or any(
        each.kind is not each.POSITIONAL_OR_KEYWORD for each in parameters
    ):
        return why
    given = parameters[1].annotation
    is_named = isinstance(given, str) and given.rpartition(".")[2] == Principal.__name__
    return "" if given is Principal or is_named else why


def right_of(member: FunctionType) -> Right:
    """Return the right that a method declares; it must not change an entity."""
    return member if hasattr(member, "__readonly__") else readonly(member)
