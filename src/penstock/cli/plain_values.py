"""The words of a command line whose values are clear, without a validator.

Typer validates each value with pydantic, whose import takes longer than the help or an error of a
command. `take_plain_values` gives its parameters a shortcut for absent values, defaults, text, whole numbers and
paths. Typer still validates all other values, so its messages stay the same.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

_UNCLEAR: Final = object()
_DIGITS_MAX: Final = 19


class _Coercion:
    """The conversion of a parameter's words to its value, as typer calls it."""

    def __init__(self, parameter: Any) -> None:
        self._validated = parameter.get_runtime_param
        self._annotation = parameter.type_descriptor.annotation
        info = parameter.type_descriptor.parameter_info
        bounds = {info.parser, info.path_type, info.min, info.max}
        checks = info.exists or info.resolve_path or info.writable or info.allow_dash
        self._is_free = bounds == {None} and info.file_okay and info.dir_okay and not checks

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter.

        Args:
            value: The word or the words of the command line; None without words.
            param: The parameter, of typer.
            ctx: The context, of typer.

        Raises:
            typer.BadParameter: The parameter does not take this value.
        """
        is_multiple = param.multiple or param.nargs == -1
        plain = self._words(value) if is_multiple else self._word(value, param.default)
        if plain is _UNCLEAR:
            return self._validated().coerce(value, param=param, ctx=ctx)
        return plain

    def _words(self, value: Any) -> Any:
        if value is None:
            return ()
        if self._annotation != list[str] or not self._is_free or isinstance(value, str):
            return _UNCLEAR
        return list(value) if all(isinstance(word, str) for word in value) else _UNCLEAR

    def _word(self, value: Any, default: Any) -> Any:
        if value is None or (value is default and type(value) is self._annotation):
            return value
        if not isinstance(value, str) or not self._is_free:
            return _UNCLEAR
        is_number = value.isascii() and value.isdecimal() and len(value) < _DIGITS_MAX
        is_clear = {
            str: True,
            int: is_number,
            Path: os.access(value, os.R_OK) or not os.path.lexists(value),
        }
        return self._annotation(value) if is_clear.get(self._annotation, False) else _UNCLEAR


def take_plain_values(command: Any) -> None:
    """Let the parameters of a command take plain values without a validator, also the option `--help`."""
    command.get_params = partial(_plain_parameters, command.get_params)


def _plain_parameters(parameters_of: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    parameters = parameters_of(ctx)
    for parameter in parameters:
        validated = getattr(parameter, "get_runtime_param", None)
        if validated is not None and not isinstance(validated, partial):
            parameter.get_runtime_param = partial(_same, _Coercion(parameter))
    return parameters


def _same(coercion: _Coercion) -> _Coercion:
    return coercion
