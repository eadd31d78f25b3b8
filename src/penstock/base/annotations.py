"""Annotations of classes and functions, in all versions of Python.

Before Python 3.14 a definition evaluates its annotations at once. Since then the first reader of the
annotations evaluates them (PEP 649, PEP 749), and a name may be defined later than the class or the function.
An annotation with a name that is still unknown is its text here, as if it had been written in quotes.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

if sys.version_info >= (3, 14):
    from annotationlib import Format, ForwardRef, get_annotations

EVALUATOR: Final = "__annotate_func__"
"""The name of the function, among the attributes of a class, that evaluates the annotations since Python 3.14."""


def annotations_of(owner: Any) -> dict[str, Any]:
    """Return the annotations of a class, without those of its bases, or of a function."""
    if sys.version_info >= (3, 14):
        found = get_annotations(owner, format=Format.FORWARDREF)
        if not all(map(_is_known, found.values())):
            texts = get_annotations(owner, format=Format.STRING)
            found = {name: one if _is_known(one) else texts[name] for name, one in found.items()}
        return found
    return inspect.get_annotations(owner)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, with the annotations that `annotations_of` returns.

    Raises:
        TypeError, ValueError: The function has no signature.
    """
    if sys.version_info >= (3, 14):
        found = inspect.signature(function, annotation_format=Format.FORWARDREF)
        returns = found.return_annotation
        written = [one.annotation for one in found.parameters.values()]
        if not all(map(_is_known, [*written, returns])):
            texts = inspect.signature(function, annotation_format=Format.STRING)
            parameters = [
                one if _is_known(one.annotation) else texts.parameters[name]
                for name, one in found.parameters.items()
            ]
            returns = returns if _is_known(returns) else texts.return_annotation
            found = found.replace(parameters=parameters, return_annotation=returns)
        return found
    return inspect.signature(function)


def _is_known(annotation: Any) -> bool:
    """Say whether all names of an annotation have a value."""
    if sys.version_info >= (3, 14) and isinstance(annotation, ForwardRef):
        return False
    inside = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    return all(map(_is_known, inside))


def evaluate(
    annotations: Mapping[str, Any],
    global_names: Mapping[str, Any],
    local_names: Mapping[str, Any] | None = None,
    *,
    include_extras: bool = False,
) -> dict[str, Any]:
    """Return the types that annotations name, as `typing.get_type_hints` does.

    Args:
        annotations: Annotations as they are written, or as `annotations_of` returns them.
        global_names: The values of names.
        local_names: The values of names that come before the global ones.
        include_extras: Whether what `Annotated` adds to a type is kept.

    Returns:
        The type of each annotation.

    Raises:
        NameError: A name has no value.
        SyntaxError, TypeError, AttributeError: A text is not a type.
    """
    carrier = type("Carrier", (), {"__annotations__": dict(annotations)})
    return typing.get_type_hints(
        carrier, dict(global_names), dict(local_names or {}), include_extras=include_extras
    )
