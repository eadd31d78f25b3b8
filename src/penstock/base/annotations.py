"""Annotations of classes and functions, in all versions of Python.

Before Python 3.14 a definition evaluates its annotations at once. Since then the first reader of the
annotations evaluates them (PEP 649, PEP 749), and a name may be defined later than the class or the function.
An annotation with a name that is still unknown is its text here, as if it had been written in quotes.
"""

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

if sys.version_info >= (3, 14):
    from annotationlib import Format, ForwardRef, get_annotations

EVALUATOR: Final = "__annotate_func__"
"""The name of the function, among the attributes of a class, that evaluates the annotations since Python 3.14."""

UNIONS: Final = (typing.Union, types.UnionType)
"""The results of `typing.get_origin` for a union: `A | B` has another origin than `Union[A, B]`."""


def annotations_of(owner: Any) -> dict[str, Any]:
    """Return the annotations of a class, without those of its bases, or of a function."""
    if sys.version_info >= (3, 14):
        annotations = get_annotations(owner, format=Format.FORWARDREF)
        if not all(map(_is_known, annotations.values())):
            texts = get_annotations(owner, format=Format.STRING)
            annotations |= {
                name: texts[name] for name in annotations if not _is_known(annotations[name])
            }
        return annotations
    return inspect.get_annotations(owner)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, with the annotations that `annotations_of` returns.

    Raises:
        TypeError, ValueError: The function has no signature.
    """
    if sys.version_info >= (3, 14):
        signature = inspect.signature(function, annotation_format=Format.FORWARDREF)
        texts = inspect.signature(function, annotation_format=Format.STRING)
        returns = signature.return_annotation
        return signature.replace(
            parameters=[
                parameter if _is_known(parameter.annotation) else texts.parameters[name]
                for name, parameter in signature.parameters.items()
            ],
            return_annotation=returns if _is_known(returns) else texts.return_annotation,
        )
    return inspect.signature(function)


def _is_known(annotation: Any) -> bool:
    """Say whether all names of an annotation have a value."""
    if sys.version_info >= (3, 14) and isinstance(annotation, ForwardRef):
        return annotation.__owner__ is None  # a text inside of a type, such as Optional["Item"]
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
        local_names: The values of names that come before the global ones.
        include_extras: Whether the additions of `Annotated` to a type are kept.

    Raises:
        NameError: A name has no value.
        SyntaxError, TypeError, AttributeError: A text is not a type.
    """
    carrier = type("Carrier", (), {"__annotations__": dict(annotations)})
    return typing.get_type_hints(
        carrier, dict(global_names), dict(local_names or {}), include_extras=include_extras
    )
