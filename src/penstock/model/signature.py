"""Signatures: the parameters and the result of a method or function, and the encoding of arguments.

A `Signature` checks arguments against annotations twice: when the request is made, so that the caller
gets the error at once, and when it runs, because the log does not check requests. Between both, the code may change. So
the arguments by position are stored with the names that their parameters had, and a later signature takes them by name.
"""

import functools
import inspect
import json
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.base.given_type import GivenType, RepeatedNames, may_be_rounded, refuse_rounded
from penstock.base.ids import Fingerprint, fingerprint_of
from penstock.base.lowering import lower_of, lower_reply, place_in
from penstock.base.misfit import misfit_of, place_of
from penstock.base.near_names import did_you_mean
from penstock.base.record import RecordKind, fields_of, is_record, kind_of, simplified
from penstock.base.schema import (
    ENCODER,
    UNENCODABLE,
    decode_reference,
    is_enum,
    reason_of,
    reference_type,
    wire_type,
)
from penstock.base.stored_type import stored_decoder
from penstock.base.words import JSON_BEGINS, UNREADABLE, value_of_word
from penstock.errors import RequestError, Unencodable
from penstock.model.request import NAMES
from penstock.model.row_plan import arguments_plan_of, result_plan_of

_UNREADABLE: Final = (*UNREADABLE, IndexError)
"""The errors of decoding bytes from outside; msgspec's errors are `ValueError`s."""

_ROW: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_NAMED: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_ARGUMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw] | dict[str, msgspec.Raw])
_BOTH: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw])
NONE_BY_POSITION: Final = msgspec.Raw(b"\x90")
NONE_BY_NAME: Final = msgspec.Raw(b"\x80")
_LISTED: Final = msgspec.msgpack.Decoder(list[str | int])
_DEPTH_MAX: Final = 16
_SERIES: Final = (list, tuple, set, frozenset)
_WITH_TEXT: Final = (str, list, tuple, dict)
"""Types of values in which a text may stand for a number or a time."""
_WITHOUT_REFERENCE: Final[tuple[Any, ...]] = (
    *(int, float, bool, str, bytes, type(None), date, datetime, time, timedelta, Decimal, UUID),
)
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature:
    """The parameters, without `self`, and the result of a method or function.

    Attributes:
        name: The name in messages: `Item.update_stock`, or the name of a function.
        where: `file:line` of the definition.
        readonly: Whether the function is marked `@readonly`.
        internal: Whether it is marked `@internal`.
        time_ms: The processor time that `@limit(time=…)` declares; None if it declares none.
        parameters: The parameters by name, without constraints; the annotation is `Any` if the source has none.
        constrained: The types of the parameters with their constraints.
        returns: The annotation of the result, without constraints; `Any` if the source has none.
        declared_result: The same with its constraints.
        plan: The plan of the positional arguments for `penstock.native`; None if Python reads them.
        result_plan: The same of the result.
        heads: The encoded arguments by name of a call without any, by the number of its arguments by position.
        is_outdated: Says whether a function of `@migrate` has changed the values of rows with a tag, for `create`; else None.
        lasting: The parameters whose defaults a request can be stored with; see `completed`.
    """

    plan: Any = None
    result_plan: Any = None
    is_outdated: Callable[[int], bool] | None = None
    _has_records: bool | None = None
    _without_reference: frozenset[int | str] = frozenset()
    """The names and places of parameters whose values have no reference where `_flatten` looks."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: Sequence[inspect.Parameter],
        returns: Any,
        where: str,
    ) -> None:
        self.name = name
        self.function = function
        self.where = where
        self.readonly, self.internal = (
            hasattr(function, mark) for mark in ("__readonly__", "__internal__")
        )
        self.time_ms: int | None = None  # `declare_times` sets it
        self.declared_result, self.returns = returns, simplified(returns)
        self.constrained = {parameter.name: parameter.annotation for parameter in parameters}
        parameters = [
            parameter.replace(annotation=simplified(parameter.annotation))
            for parameter in parameters
        ]
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self._positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
        self._rest = next(
            (parameter for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL),
            None,
        )
        self._more = next(
            (parameter for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None
        )
        self.heads = _heads_of([parameter.name for parameter in self._positional])
        self.lasting: dict[str, Any] = {}
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [
            parameter
            for parameter in parameters
            if parameter.default is parameter.empty and parameter.kind not in variadic
        ]
        self._least = len(needed)
        if any(parameter.kind is parameter.KEYWORD_ONLY for parameter in needed):
            self._least = len(self._positional) + 1  # positional arguments alone never suffice
        self._lowers = {parameter.name: lower_of(parameter.annotation) for parameter in parameters}
        any_name = self._more is not None
        self._repeated = RepeatedNames(Any if any_name else type(None), self.parameters)
        self._decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {}
        self._by_name: dict[str, msgspec.msgpack.Decoder[Any]] = {}
        self._given: dict[str, GivenType] = {}
        self._readers: list[Callable[[msgspec.Raw], Any]] | None = None
        self._shape = inspect.Signature(list(parameters))
        self._whole = _named_of(parameters)
        self._needed = {parameter.name for parameter in needed} | (self._whole & {""})

    def settle(self) -> None:
        """Make the plan, after `bind` of every class that an argument may refer to; no transaction runs code of a type."""
        self.note_defaults()
        if self._rest is None:
            self.plan = arguments_plan_of(self.constrained[each.name] for each in self._positional)
        self.result_plan = result_plan_of(self.returns)
        without = [
            name for name, each in self.parameters.items() if not _may_refer(each.annotation)
        ]
        places = [at for at, each in enumerate(self._positional) if each.name in without]
        self._without_reference = frozenset((*without, *places))

    def note_defaults(self) -> None:
        """Find the parameters with a default that fits their type."""
        self.lasting = {}
        for parameter in self.parameters.values():
            default = parameter.default
            if default is parameter.empty or default is msgspec.UNSET:
                continue
            if parameter.name not in self._whole:
                continue
            try:
                raw = self._lower(parameter, parameter.default)
                self._of_name(parameter.name, raw)
            except (RequestError, *UNENCODABLE, *_UNREADABLE):
                continue  # such as None for `create` without a key, or a factory: its value belongs to the time of the call
            self.lasting[parameter.name] = parameter.default

    def completed(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments by name with the defaults of the parameters that have no argument.

        A request that a handler sends may run after a deployment: the defaults of later code do not belong to it.
        """
        if not self.lasting:
            return named
        given = {parameter.name for parameter in self._positional[: len(positional)]}
        return {
            **{name: value for name, value in self.lasting.items() if name not in given},
            **named,
        }

    def encode(
        self, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[msgspec.Raw, msgspec.Raw]:
        """Encode arguments as a MessagePack array and map, checked against the annotations.

        Raises:
            RequestError: The arguments do not fit; the message names the parameter.
        """
        if not positional and not named and not self._whole:
            return NONE_BY_POSITION, NONE_BY_NAME
        if self.plan is not None and not named and self._least <= len(positional):
            data = self.plan.encode((*positional,))
            if data is not None:  # each argument is exactly of its type, so it can be read, too
                return msgspec.Raw(data), self.heads[len(positional)]
        tag = named.get(NAMES)
        if tag is not None:
            named = {name: value for name, value in named.items() if name != NAMES}
        try:
            self._bind(positional, named)
            row = [self._lower(self._at(i), value) for i, value in enumerate(positional)]
            by_position = msgspec.Raw(ENCODER.encode(row))
            by_name = self._encode_named(min(len(row), len(self._positional)), named, tag)
        except TypeError as error:
            self._refuse_unknown(named)
            raise RequestError(f"{self.name}: {error}") from error
        # The encoded arguments must be readable when the request runs, perhaps much later; a caller
        # hears of it now.
        self._refuse_rounded(by_position, by_name, self.decode(by_position, by_name))
        return by_position, by_name

    def _refuse_rounded(
        self,
        positional: msgspec.Raw,
        named: msgspec.Raw,
        arguments: tuple[Sequence[Any], dict[str, Any]],
    ) -> None:
        """Refuse an integer that decoding has rounded to a float, with the name of its parameter."""
        if not (may_be_rounded(positional) or may_be_rounded(named)):
            return
        row, more = arguments  # an argument by position may be among those by name now
        try:
            refuse_rounded(positional, [*row, more])
        except msgspec.ValidationError as error:
            raise RequestError(f"{self.name}: {self._explain(str(error))}") from error
        try:
            refuse_rounded(named, {**more, NAMES: row})
        except msgspec.ValidationError as error:
            misfit = misfit_of(str(error))
            raise RequestError(f"{self.name}: {str(misfit).removeprefix('.')}") from error

    def _encode_named(self, count: int, named: Mapping[str, Any], tag: object) -> msgspec.Raw:
        """Encode arguments by name behind those of the first parameters by position; `tag` is that of a creation's class."""
        if not named and tag is None:
            return self.heads[count]
        if tag is not None and (type(tag) is not int or self.is_outdated is None):
            raise RequestError(f"{self.name}: an argument has no name")
        extra: dict[str, Any] = {
            name: self._lower(self._named(name), named[name]) for name in sorted(named)
        }
        listed: list[Any] = [each.name for each in self._positional[:count]]
        listed += [] if tag is None else [tag]
        return msgspec.Raw(ENCODER.encode({NAMES: listed, **extra} if listed else extra))

    def decode(
        self, positional: msgspec.Raw, named: msgspec.Raw
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Decode arguments; references in them belong to the running transaction.

        Raises:
            RequestError: The arguments do not fit the signature.
        """
        # Many calls have no argument, and this is the hot path.
        if positional == NONE_BY_POSITION and named == NONE_BY_NAME and self._least == 0:
            return (), {}
        try:
            if not self._is_head(positional, named):
                return self._decode_by_name(positional, named)
            if self._rest is None:
                arguments = self._decoder_of(positional).decode(positional)
            else:
                arguments = self._decode_open(positional)
            if not self._least <= len(arguments) <= len(self._positional):
                self._shape.bind(*arguments)  # raises an error that names the parameter
        except msgspec.ValidationError as error:
            raise RequestError(f"{self.name}: {self._explain(str(error))}") from error
        except _UNREADABLE as error:
            raise RequestError(f"{self.name}: {error}") from error
        return arguments, {}

    def _is_head(self, positional: msgspec.Raw, named: msgspec.Raw) -> bool:
        """Say whether all arguments are by position, and belong to the first parameters in this order."""
        if named == NONE_BY_NAME:  # also those of a time when they had no names
            return True
        count = min(_array_length(memoryview(positional)), len(self._positional))
        return bool(named == self.heads[count])

    def _decode_by_name(
        self, positional: msgspec.Raw, named: msgspec.Raw
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Decode arguments of which some have names, or whose parameters had other names or places when they were encoded."""
        given = _NAMED.decode(named)
        row = _ROW.decode(positional)
        listed = given.pop(NAMES, None)
        names = self._names_in(listed)
        moved = dict(zip(names, row, strict=False))
        beyond = row[len(names) :]
        # A deployment may have moved a parameter that another argument names.
        twice = [name for name in moved if name in given]
        if twice or len(set(names)) < len(names):
            raise RequestError(f"{self.name} got the argument {(twice or sorted(names))[0]} twice")
        arguments: list[Any] = []
        for parameter in self._positional:
            if parameter.name not in moved:
                break
            arguments.append(self._of_name(parameter.name, moved.pop(parameter.name)))
        if beyond and (self._rest is None or len(arguments) < len(self._positional)):
            raise RequestError(
                f"{self.name} takes {len(self._positional)} positional arguments, got more"
            )
        if self._rest is not None:
            arguments += [self._of_msgpack(self._rest, raw) for raw in beyond]
        more = {name: self._of_name(name, raw) for name, raw in {**moved, **given}.items()}
        self._bind(arguments, more)
        return arguments, more

    def _bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Check that arguments fit the parameters.

        Raises:
            TypeError: They do not.
        """
        names = [each.name for each in self._positional[: len(positional)]]
        given = named.keys() | names
        # Of a name that is given twice there is one, and an argument without a parameter has none.
        if len(given) == len(positional) + len(named) and self._needed <= given <= self._whole:
            return
        self._shape.bind(*positional, **named)  # slower, and names the parameter

    def _names_in(self, listed: msgspec.Raw | None) -> list[str]:
        """Return the names of the parameters to which arguments by position belong."""
        if listed is None:
            return [parameter.name for parameter in self._positional]
        names = _LISTED.decode(listed)
        for tag in (each for each in names if isinstance(each, int)):
            if self.is_outdated is not None and self.is_outdated(tag):
                raise RequestError(
                    f"{self.name}: the request was made for an earlier version of the class, and a function with @migrate has "
                    "changed its values since; make it again"
                )
        return [each for each in names if isinstance(each, str)]

    def fingerprints(
        self, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Fingerprint]:
        """Return the fingerprints of the references in the arguments, at any depth."""
        values = [value for at, value in enumerate(positional) if at not in self._without_reference]
        values += [value for name, value in named.items() if name not in self._without_reference]
        return [
            fingerprint_of(f"{type(leaf).__name__}/{reference.text_of(leaf)}")
            for value in values
            for leaf in _flatten(value)
            if (reference := reference_type(type(leaf))) is not None
        ]

    def parse(self, texts: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
        """Read arguments from words of a command line: JSON, bare text, or `name=value`.

        Raises:
            RequestError: A word does not fit its parameter.
        """
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for text in texts:
            name, equals, rest = text.partition("=")
            if equals and name in self.parameters:
                named[name] = self._parse_one(self.parameters[name], rest)
            elif equals and name.isidentifier() and did_you_mean(name, self.parameters):
                self._refuse_unknown(
                    [name], f" If {text} is a value, write it as JSON: {json.dumps(text)}"
                )
                positional.append(self._parse_one(self._at(len(positional)), text))
            else:
                positional.append(self._parse_one(self._at(len(positional)), text))
        return positional, named

    def of_text(self, name: str, text: str) -> Any:
        """Read an argument from a path or a query: as bare text, or else as JSON.

        Raises:
            RequestError: The text fits neither way, or the parameter does not exist.
        """
        parameter = self._named(name)
        given = self._given_type(parameter)
        try:
            return msgspec.convert(text, given.annotation, strict=False, dec_hook=decode_reference)
        except (msgspec.ValidationError, Unencodable) as error:
            try:
                return given.of_json(text)
            except _UNREADABLE as as_json:
                shown = as_json if text.lstrip().startswith(JSON_BEGINS) else error
                raise self._misfit(name, parameter.annotation, shown) from error

    def of_json(self, text: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Read arguments from JSON: an array by position, an object by name, or nothing.

        Raises:
            RequestError: The text is neither a JSON array nor an object, or does not fit.
        """
        if not text.strip():
            return [], {}
        try:
            decoded = _ARGUMENTS.decode(text)
        except _UNREADABLE as error:
            raise RequestError(
                f"{self.name}: the body is neither a JSON array nor an object: {error}"
            ) from error
        if decoded and not isinstance(decoded, list):
            self._refuse_repeated(text)
        if isinstance(decoded, list):
            return self._of_json_row(decoded), {}
        self._refuse_unknown(decoded)
        return [], {
            name: self._of_json(self._named(name), raw, name) for name, raw in decoded.items()
        }

    def _of_json_row(self, row: list[msgspec.Raw]) -> list[Any]:
        """Read arguments by position."""
        if self._readers is None:
            self._readers = [self._given_type(parameter).of_json for parameter in self._positional]
        values: list[Any] = []
        try:
            for read, raw in zip(self._readers, row, strict=False):
                values.append(read(raw))
        except _UNREADABLE as error:
            parameter = self._positional[len(values)]
            raise self._misfit(parameter.name, parameter.annotation, error) from error
        beyond = range(len(values), len(row))
        return values + [self._of_json(self._at(index), row[index]) for index in beyond]

    def of_sender(self, name: str, text: bytes) -> Any:
        """Read an argument from JSON of a sender who does not know its type: fields that no record declares are left out.

        Raises:
            RequestError: The text does not fit.
        """
        parameter = self._named(name)
        try:
            return self._given_type(parameter).of_json(text, is_open=True)
        except _UNREADABLE as error:
            raise self._misfit(name, parameter.annotation, error) from error

    def of_msgpack(self, data: bytes) -> tuple[Sequence[Any], dict[str, Any]]:
        """Read arguments from MessagePack: a pair of an array by position and a map by name.

        Raises:
            RequestError: The data is not such a pair, or does not fit the signature.
        """
        try:
            positional, named = _BOTH.decode(data)
        except _UNREADABLE as error:
            raise RequestError(f"{self.name}: the body does not hold arguments: {error}") from error
        return self.of_caller(positional, named)

    def of_caller(
        self, positional: msgspec.Raw, named: msgspec.Raw
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Decode arguments that come from a caller, and not from the log; raises as `decode`.

        Records in them must have no unknown fields. In the log they may: another version of the code had these fields.
        """
        arguments = self.decode(positional, named)
        self._refuse_rounded(positional, named, arguments)
        if self._has_records is None:
            given = map(self._given_type, self.parameters.values())
            self._has_records = any(each.has_records for each in given)
        if self._has_records:
            given_names, row = _NAMED.decode(named), _ROW.decode(positional)
            names = self._names_in(given_names.pop(NAMES, None))
            for raw in row[len(names) :]:
                self._check_given(self._at(len(self._positional)), raw)
            for name, raw in (*zip(names, row, strict=False), *given_names.items()):
                self._check_given(self._named(name), raw)
        return arguments

    def _refuse_unknown(self, names: Iterable[str], remedy: str = "") -> None:
        """Refuse arguments by name that no parameter takes, with the names that are similar."""
        unknown = [name for name in names if name not in self.parameters]
        if unknown and self._more is None:
            known = ", ".join(self.parameters) or "none"
            hint = did_you_mean(unknown[0], self.parameters) or f"; its parameters: {known}"
            raise RequestError(f"{self.name} has no parameter {unknown[0]}{hint}{remedy}")

    def _refuse_repeated(self, text: bytes) -> None:
        """Refuse an argument that is given twice by name, of which the last value would count."""
        try:
            self._repeated.refuse(text)
        except _UNREADABLE as error:
            raise RequestError(f"{self.name}: {error}") from error

    def _check_given(self, parameter: inspect.Parameter, raw: msgspec.Raw) -> None:
        try:
            self._given_type(parameter).check_msgpack(raw)
        except msgspec.ValidationError as error:
            raise self._misfit(parameter.name, parameter.annotation, error) from error

    def _given_type(self, parameter: inspect.Parameter) -> GivenType:
        given = self._given.get(parameter.name)
        if given is None:
            given = self._given[parameter.name] = GivenType(self.constrained[parameter.name])
        return given

    def _of_json(self, parameter: inspect.Parameter, raw: msgspec.Raw, name: str = "") -> Any:
        try:
            return self._given_type(parameter).of_json(raw)
        except _UNREADABLE as error:
            raise self._misfit(name or parameter.name, parameter.annotation, error) from error

    def _of_msgpack(self, parameter: inspect.Parameter, raw: msgspec.Raw) -> Any:
        annotation = self.constrained[parameter.name]
        try:
            return msgspec.msgpack.decode(raw, type=annotation, dec_hook=decode_reference)
        except _UNREADABLE as error:
            raise self._misfit(parameter.name, parameter.annotation, error) from error

    def _parse_one(self, parameter: inspect.Parameter, text: str) -> Any:
        try:
            return value_of_word(text, self._given_type(parameter))
        except UNREADABLE as error:
            misfit = misfit_of(reason_of(error)).explained(parameter.annotation)
            raise RequestError(f"{self.name}, {parameter.name}={text}: {misfit}") from error

    def _at(self, index: int) -> inspect.Parameter:
        if index < len(self._positional):
            return self._positional[index]
        if self._rest is not None:
            return self._rest
        count = len(self._positional)
        raise RequestError(f"{self.name} takes {count} positional arguments, got more")

    def _named(self, name: str) -> inspect.Parameter:
        parameter = self.parameters.get(name, self._more)
        if parameter is None:
            raise RequestError(f"{self.name} has no parameter {name}")
        return parameter

    def _of_name(self, name: str, raw: msgspec.Raw) -> Any:
        """Decode a named argument.

        `msgspec.convert` could not: it leaves the keys of a dictionary as text where they are references.
        """
        parameter = self._named(name)
        decoder = self._by_name.get(parameter.name)
        if decoder is None:
            annotation = self.constrained[parameter.name]
            decoder = msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference)
            self._by_name[parameter.name] = decoder
        try:
            return decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise self._misfit(name, parameter.annotation, error) from error

    def _lower(self, parameter: inspect.Parameter, value: Any) -> msgspec.Raw:
        lower = self._lowers[parameter.name]
        try:
            raw = msgspec.Raw(ENCODER.encode(lower(value) if lower else value))
            if lower and isinstance(value, _WITH_TEXT):
                typed = msgspec.Raw(ENCODER.encode(lower(self._of_msgpack(parameter, raw))))
                raw = raw if may_be_rounded(raw) else typed
            return raw
        except UNENCODABLE as error:
            place = f"{parameter.name}{place_in(value)}"
            raise RequestError(f"{self.name}: {place}: {reason_of(error)}") from error

    def _decode_open(self, positional: msgspec.Raw) -> list[Any]:
        """Decode each argument by itself, for a function that takes any number of arguments.

        Callers from outside could let a cache of a decoder for each number grow without limit.
        """
        return [
            self._of_msgpack(self._at(index), raw)
            for index, raw in enumerate(_ROW.decode(positional))
        ]

    def _decoder_of(self, positional: msgspec.Raw) -> msgspec.msgpack.Decoder[Any]:
        count = _array_length(memoryview(positional))
        decoder = self._decoders.get(count)
        if decoder is None:
            types = tuple(self.constrained[self._at(index).name] for index in range(count))
            row = tuple[types] if types else tuple[()]  # type: ignore[valid-type]
            decoder = msgspec.msgpack.Decoder(row, dec_hook=decode_reference)
            self._decoders[count] = decoder
        return decoder

    def _misfit(self, name: str, annotation: Any, error: Exception) -> RequestError:
        """Return the error about the value of a parameter."""
        misfit = misfit_of(reason_of(error)).explained(annotation)
        return RequestError(f"{self.name}: {misfit.at(name)}")

    def _explain(self, complaint: str) -> str:
        """Replace msgspec's path into the arguments by the parameter's name."""
        index, misfit = place_of(complaint)
        if index is None:
            return str(misfit)
        parameter = self._at(index)
        return misfit.explained(parameter.annotation).at(parameter.name)


def with_checked_result(
    name: str, function: Callable[..., Any], returns: Any
) -> Callable[..., Any]:
    """Return a handler that raises `Unencodable` where its result does not keep to the constraints of its type."""
    wire = wire_type(returns)
    decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(wire, dec_hook=decode_reference).decode
    if getattr(function, "__readonly__", False):  # it may return a record from before a constraint
        decode = stored_decoder(wire)

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        try:
            decode(ENCODER.encode(lower_reply(result)))
        except UNENCODABLE as error:
            misfit = misfit_of(reason_of(error))
            raise Unencodable(misfit.at(f"the result of {name}")) from error
        return result

    return checked


def _named_of(parameters: Sequence[inspect.Parameter]) -> set[str]:
    """Return the parameters that can be given by name; and an empty text, which no call can give, if there are others."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name if parameter.kind in by_name else "" for parameter in parameters}


def _heads_of(names: Sequence[str]) -> tuple[msgspec.Raw, ...]:
    """Return the encoded arguments by name of calls without any, by the number of arguments by position."""
    counts = range(1, len(names) + 1)
    listed = (msgspec.Raw(ENCODER.encode({NAMES: names[:count]})) for count in counts)
    return NONE_BY_NAME, *listed


def _array_length(data: memoryview) -> int:
    """Return the length of a MessagePack array, from its head."""
    head = data[0]
    if head & 0xF0 == 0x90:
        return head & 0x0F
    if head in (0xDC, 0xDD):
        return int.from_bytes(data[1 : 3 if head == 0xDC else 5], "big")
    raise msgspec.DecodeError("the arguments are not an array")


def _may_refer(annotation: Any, depth: int = 0) -> bool:
    """Say whether a value of a type can have a reference where `_flatten` looks; a wrong yes costs time only."""
    if reference_type(annotation) is not None or depth == _DEPTH_MAX:
        return True
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return False
    if kind_of(annotation) in (RecordKind.NAMED_TUPLE, RecordKind.TYPED_DICT):
        arguments = tuple(field.annotation for field in fields_of(annotation))
    elif is_record(annotation):
        return False
    elif not arguments:
        return annotation not in _WITHOUT_REFERENCE and not is_enum(annotation)
    return any(part is not Ellipsis and _may_refer(part, depth + 1) for part in arguments)


def _flatten(value: Any) -> list[Any]:
    # `isinstance` asks a reference for its class, which takes longer than all else here.
    cls = type(value)
    if issubclass(cls, _SERIES):
        return [leaf for item in value for leaf in _flatten(item)]
    if issubclass(cls, dict):
        return [leaf for pair in value.items() for item in pair for leaf in _flatten(item)]
    return [value]
