"""The description of an entity class: its key, attributes and methods, and the encoding of its state.

`@entity` creates an `EntityType` when the class is defined; `App` binds it, because annotations may name entity classes
that are defined later. Equal attributes have one encoding, and a row of another shape is never read as a row of this
class. `entity` gives classes their behaviour in transactions; `declaration` reads their source.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import msgspec

from penstock.base.ids import EntityKey
from penstock.base.key_text import KEY_BYTES_MAX, decode_key, encode_key
from penstock.base.lowering import Lower, alike, changed_part, lower_of, place_in
from penstock.base.misfit import misfit_of, place_of
from penstock.base.near_names import did_you_mean
from penstock.base.record import simplified
from penstock.base.schema import (
    ENCODER,
    PLAIN,
    UNENCODABLE,
    decode_reference,
    is_exact,
    name_of,
    reason_of,
    shown,
    wire_type,
)
from penstock.base.stored_type import stored_decoder
from penstock.base.subject_keys import SubjectKeys
from penstock.errors import Diverged, Unencodable
from penstock.model.declaration import CREATIONS
from penstock.model.principal import Principal
from penstock.model.row_plan import key_plan_of, row_plan_of
from penstock.model.schema_version import SchemaVersion
from penstock.model.shape import Shape, shape_of, tag_of
from penstock.model.signature import Signature
from penstock.model.upcast import Complete, Migrating, Upcast, completed_as_declared

# Each use of an entity makes a dictionary of its attributes from a row, and the end of its transaction makes a row from
# them. Generated functions need no loop: this one takes less than half the time of `dict(zip(…))`. `dataclasses`
# generates its methods in the same way.


Row = tuple[Any, ...]
"""The tag, and the lowered attributes."""

AttributeDict = Callable[[Row, object], dict[str, Any]]
"""Takes a decoded row and the key; returns the key and the attributes by name."""

RowOf = Callable[[Mapping[str, Any]], Row]
"""Takes attributes by name, of which some may not belong to the row; returns the row."""


def attribute_dict_of(key_name: str, names: Sequence[str]) -> AttributeDict:
    """Return the function that names the values of rows.

    Args:
        key_name: The name of the key, which comes first in the result.
        names: The names of the other values, in the order of the row.
    """
    values = [f"value_{index}" for index in range(len(names))]
    pairs = [f"{name!r}: {value}" for name, value in zip(names, values, strict=True)]
    source = (
        "def attribute_dict(row, key):\n"
        f"    {', '.join(['_tag', *values])}, = row\n"
        f"    return {{{', '.join([f'{key_name!r}: key', *pairs])}}}\n"
    )
    scope: dict[str, Any] = {}
    _define(source, scope)
    made: AttributeDict = scope["attribute_dict"]
    return made


def row_of(tag: int, names: Sequence[str], lowers: Mapping[str, Lower]) -> RowOf:
    """Return the function that makes rows; it raises `KeyError` if an attribute is missing.

    Args:
        names: The names of the attributes, in the order of the row.
        lowers: The functions that lower attributes, by name; the others are taken as they are.
    """
    scope: dict[str, Any] = {}
    row = [str(tag)]
    for index, name in enumerate(names):
        value = f"values[{name!r}]"
        if name in lowers:
            scope[f"lower_{index}"] = lowers[name]
            value = f"lower_{index}({value})"
        row.append(value)
    _define(f"def row(values):\n    return ({', '.join(row)},)\n", scope)
    made: RowOf = scope["row"]
    return made


def _define(source: str, scope: dict[str, Any]) -> None:
    """Run a definition whose only foreign parts are quoted names of attributes."""
    # The definition needs none, and a name of an attribute must not reach one.
    scope["__builtins__"] = {}
    exec(source, scope)  # noqa: S102 -- see above


_encode: Final = ENCODER.encode
_RAWS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_values_of: Final = object.__getattribute__
_SAFE_DIGITS: Final = 19
"""A number with fewer characters than this has less than 64 bits."""
SHORT_KEY: Final = 1 + KEY_BYTES_MAX // 4
"""A key with fewer characters than this never exceeds the limit of bytes."""


class EntityType:
    """The description of an entity class; the class has it as `__reference__`.

    Attributes:
        name: The name of the class, unique in an application.
        stored_name: The name that the stored entities have: the name of the class when it was deployed first.
        cls: The user's class; its instances are loaded entities.
        unloaded: The subclass of `cls` whose instances are references that are not loaded.
        asleep: The subclass of `cls` whose instances are entities that no block (`savepoint`) has touched yet.
        copied: The subclass of `cls` whose instances are copies outside of transactions; see `copy_of`.
        where: `file:line` of the class.
        key_annotation, attributes, methods, creation: Set by `bind` and by `App`; types without constraints.
        creations: The signature of each method in `CREATIONS`; `creation` is that of `create`.
        constrained_key, constrained: The same types with their constraints.
        shape: The stored shape; set by `settle`.
        row_head: The first bytes of each row: the head of the MessagePack array, and the tag.
        row_plan: The plan of the rows for `penstock.native`; None if Python reads and writes them.
        key_plan: The same for the texts of keys.
        assigned: The values that `__init__` gives to attributes without an argument; rows that lack them get them.
        must_exist: The attributes whose references must exist when a transaction ends.
        indexes, indexed_values, index_places: The indexes of the class, from `model.index`; the values of a row on which they
            depend, and their places, ascending.
        former_names: The former names of attributes, from `was`.
        internal: The methods that no caller from outside reaches; see `penstock.internal`.
        allows: Says whether a caller from outside may use an entity; None if the class declares no right per row.
        migrations: The functions of `@migrate`, by the number of the version that they make.
        versions: The schema versions of its rows, the oldest first; empty until `learn`.
        interfaces: The classes by which other applications of the process declare their use of it; see `registry`.
        former_types: The classes of earlier versions, by their place in `versions`; `former_class` fills it.
        of_text: Returns the reference with the text of a key; set by `@entity`.
        initializer: The user's `__init__`; None in the style without it.
        keys: The keys of the subjects of a personal class, from `App.use_keys`.
    """

    personal: ClassVar = False
    """Whether the rows are encrypted; `PersonalType` is the class of such classes."""

    internal: frozenset[str] = frozenset()
    allows: Callable[[Any, Principal], object] | None = None
    indexes: tuple[Any, ...] = ()
    indexed_values: Any = None
    index_places: tuple[int, ...] = ()

    def __init__(self, cls: type, key_name: str, where: str, stored_name: str = "") -> None:
        self.name = cls.__name__
        self.stored_name = stored_name or self.name
        self.cls = cls
        self.unloaded = self.asleep = self.copied = cls
        self.key_name = key_name
        self.where = where
        self.prefix = f"{self.stored_name}/"
        self.initializer: Callable[..., None] | None = None
        self.defaults: dict[str, Any] = {}
        self.assigned: dict[str, Any] = {}
        self.must_exist: tuple[str, ...] = ()
        self.former_names: dict[str, str] = {}
        self.migrations: dict[int, Migrating] = {}
        self.versions: tuple[SchemaVersion, ...] = ()
        self.former_types: dict[int, EntityType] = {}
        self.interfaces: tuple[type, ...] = ()
        self.keys: SubjectKeys | None = None
        self._upcast: Upcast | None = None
        self.key_annotation: Any = str
        self.attributes: dict[str, Any] = {}
        self.constrained: dict[str, Any] = {}
        self.constrained_key: Any = str
        self.shape = Shape(0, ())
        self.row_head = b""
        self.row_plan: Any = None
        self.methods: dict[str, Signature] = {}
        self.creation: Signature | None = None
        self.creations: dict[str, Signature] = {}
        self.of_text: Callable[[str], Any] = self.key_at
        self.key_is_text = True

    @functools.cached_property
    def key_plan(self) -> Any:
        """Made at its first use, because the plans of other classes need it before this class is settled."""
        return key_plan_of(self.key_annotation)

    @property
    def is_task(self) -> bool:
        """Whether it is the class of the rows of a task, whose name consists of workflow and task."""
        return "." in self.name

    @property
    def migrated_as(self) -> str:
        """The argument of `@migrate` that names it."""
        return f'"{self.name}"' if self.is_task else self.name

    def bind(self, key_annotation: Any, attributes: Mapping[str, Any]) -> None:
        """Fix the key's and the attributes' types, with their constraints (the key is not among `attributes`)."""
        self.constrained = dict(attributes)
        self.constrained_key = key_annotation
        self.key_annotation = key_annotation = simplified(key_annotation)
        self.key_is_text = key_annotation is str
        self.__dict__.pop("key_plan", None)
        self.attributes = attributes = {
            name: simplified(annotation) for name, annotation in attributes.items()
        }
        names, annotations = tuple(attributes), tuple(attributes.values())
        self._names = names
        self._all_names = (self.key_name, *names)
        self._attribute_dict = attribute_dict_of(self.key_name, names)
        self._width = len(self._all_names)
        self._lowers: dict[str, Lower] = {
            name: lower
            for name, annotation in attributes.items()
            if (lower := lower_of(annotation)) is not None
        }
        self._exact = all(map(is_exact, annotations))
        is_plain = not self.has_constraints and all(each in PLAIN for each in annotations)
        self._plain_types = (int, *annotations) if is_plain else None  # with the tag

    def runs_initializer(self, method: str) -> bool:
        """Say whether a creation takes the arguments of `__init__`; else it takes the key, and attributes by name."""
        return self.initializer is not None and not CREATIONS[method].keeps

    @property
    def has_constraints(self) -> bool:
        """Whether `Annotated` constrains an attribute."""
        return self.constrained != self.attributes

    def settle(self, shape: Shape | None = None) -> None:
        """Fix the shape of rows, after `bind` of every class that a row may refer to.

        The shape follows from the types; `shape` replaces it if a stored shape does not determine the types.
        """
        annotations = tuple(self.attributes.values())
        key = (self.key_name, self.key_annotation)
        self.shape = shape or shape_of(
            self.stored_name, key, self.attributes, personal=self.personal
        )
        tag = self.shape.tag
        self._row_of = row_of(tag, self._names, self._lowers)
        self.row_head = row_head(tag, len(annotations))
        self._decode = stored_decoder(_row_type(tag, annotations))
        # Only changed attributes have to keep to the constraints: an older value may be from before them.
        self._checked_types = (*self.constrained.values(),)
        if self._exact:
            self._checked_types = (*map(wire_type, self._checked_types),)
        self._check = _decoder_of(tag, self._checked_types).decode
        self._plain = _decoder_of(tag, (Any,) * len(annotations)).decode
        _ = (
            self.key_plan
        )  # is made now, at the latest: no transaction runs code of a type of the user
        self.row_plan = row_plan_of(self)
        for signature in self.methods.values():
            signature.settle()
        for signature in self.creations.values():
            signature.note_defaults()
            signature.is_outdated = self.is_outdated

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Encode the attributes of an entity: a MessagePack array of the shape's tag and the values.

        Raises:
            Unencodable: An attribute is missing, undeclared, or cannot be stored.
        """
        try:
            if len(values) != self._width:
                raise KeyError
            return _encode(self._row_of(values))
        except (KeyError, *UNENCODABLE) as error:
            raise Unencodable(self._misfit(values, error)) from error

    def copy_of(self, values: Mapping[str, Any]) -> Any:
        """Return a copy of an entity outside of transactions: a reference whose attributes can be read.

        Args:
            values: All attributes, and the key.
        """
        instance: Any = object.__new__(self.copied)
        object.__setattr__(instance, "__dict__", dict(values))
        return instance

    def encode_change(self, values: Mapping[str, Any], before: bytes | None) -> bytes | None:
        """Encode attributes; return None if they are equal to the row `before`.

        The result decodes to equal attributes, whose encoding is the same bytes.

        Raises:
            Unencodable: An attribute is missing, undeclared, or does not fit its annotation.
        """
        try:
            if len(values) != self._width:
                raise KeyError
            row = self._row_of(values)
            after = _encode(row)
        except (KeyError, *UNENCODABLE) as error:
            raise Unencodable(self._misfit(values, error)) from error
        if after == before:
            return None
        # The usual row: values of the very types that are declared decode to themselves.
        if self._plain_types is not None and tuple(map(type, row)) == self._plain_types:
            return after
        return self._checked(values, row, after, before)

    def is_row(self, values: Mapping[str, Any], row: bytes | None) -> bool:
        """Say whether attributes are surely those of a row; False where only their encoding can tell."""
        return self.row_plan is not None and bool(self.row_plan.is_row(values, row))

    def _checked(
        self,
        values: Mapping[str, Any],
        row: tuple[Any, ...],
        after: bytes,
        before: bytes | None,
    ) -> bytes | None:
        """Return the row of attributes that fit their annotations, unless it is the row `before`."""
        try:
            stored = self._check(after)
            if self._exact and stored == row:
                return after
            restored = self._decode(after) if self._exact else stored
        except (msgspec.MsgspecError, RecursionError) as error:
            restored = self._restored(after, before, error)
        attributes = dict(zip(self._names, restored[1:], strict=True))
        for name, value in attributes.items():
            if not alike(values[name], value):
                change = _change_of(values[name], value, self.attributes[name])
                raise Unencodable(f"{self.name}.{name}{change}")
        # Encoded from the restored values: `1` and `True`, or a subclass, would else have two
        # encodings.
        after = self._packed(attributes)
        return None if after == before else after

    def _restored(self, after: bytes, before: bytes | None, error: Exception) -> tuple[Any, ...]:
        """Return the decoded row whose changed attributes fit; the others may be from before a constraint.

        Args:
            error: The reason why the row as a whole does not fit.
        """
        new, old = _RAWS.decode(after), [] if before is None else _RAWS.decode(before)
        # A row of another shape: nothing tells which values the handler has changed.
        if len(old) != len(new) or old[0] != new[0]:
            raise Unencodable(self._explain(reason_of(error))) from error
        for index, name in enumerate(self._names):
            if new[index + 1] != old[index + 1]:
                try:
                    checked = self._checked_types[index]
                    msgspec.msgpack.decode(new[index + 1], type=checked, dec_hook=decode_reference)
                except (msgspec.MsgspecError, RecursionError) as misfit:
                    what = misfit_of(reason_of(misfit)).explained(self.attributes[name])
                    raise Unencodable(what.at(f"{self.name}.{name}")) from misfit
        try:
            return self._decode(after)  # type: ignore[no-any-return]
        except (msgspec.MsgspecError, RecursionError) as misfit:
            raise Unencodable(self._explain(reason_of(misfit))) from misfit

    def encode_some(self, values: Mapping[str, Any]) -> dict[int, bytes]:
        """Encode some attributes, each as a row has it, by their places in a row; see `replaced`.

        Raises:
            Unencodable: An attribute is undeclared, or does not fit its annotation.
        """
        places = {name: place for place, name in enumerate(self._names, 1)}
        made: dict[int, bytes] = {}
        for name, value in values.items():
            if name not in places:
                raise Unencodable(f"{self.name} declares no attribute {name}")
            lower, annotation = self._lowers.get(name), self.attributes[name]
            try:
                data = _encode(value if lower is None else lower(value))
                checked = self._checked_types[places[name] - 1]
                msgspec.msgpack.decode(data, type=checked, dec_hook=decode_reference)
                restored = msgspec.msgpack.decode(data, type=annotation, dec_hook=decode_reference)
                # As in a whole row: `1` and `True`, or a subclass, would else have two encodings.
                data = _encode(restored if lower is None else lower(restored))
            except (msgspec.MsgspecError, *UNENCODABLE) as error:
                what = misfit_of(reason_of(error)).explained(annotation)
                raise Unencodable(what.at(f"{self.name}.{name}")) from error
            if not alike(value, restored):
                raise Unencodable(f"{self.name}.{name}{_change_of(value, restored, annotation)}")
            made[places[name]] = data
        return made

    def replaced(self, row: bytes, values: Mapping[int, bytes | msgspec.Raw]) -> bytes:
        """Return a row of the declared shape with some other attributes, which `encode_some` has encoded."""
        parts: list[Any] = _RAWS.decode(row)
        for place, value in values.items():
            parts[place] = msgspec.Raw(value)
        return _encode(parts)

    def _packed(self, values: Mapping[str, Any]) -> bytes:
        """Encode attributes that come from a row, without the key."""
        try:
            row = self._row_of(values)
        except (KeyError, *UNENCODABLE) as error:
            raise Unencodable(self._misfit(values, error)) from error
        return _encode(row)

    def learn(
        self, versions: Sequence[SchemaVersion], complete: Complete = completed_as_declared
    ) -> None:
        """Let rows of earlier versions be read, too; `stored_class.learn` has the usual `complete`.

        Args:
            versions: The versions of the class, the oldest first; the last one is the declared shape.
            complete: Adds the fields of records that a version has got, with the defaults that the version keeps.
        """
        self.versions = tuple(versions)
        self.former_types = {}
        self._upcast = Upcast(self, versions, complete) if len(versions) > 1 else None

    def is_outdated(self, tag: int) -> bool:
        """Say whether a function of `@migrate` makes other values of the rows with a tag."""
        tags = [version.shape.tag for version in self.versions]
        later = self.versions[tags.index(tag) + 1 :] if tag in tags else ()
        return any(version.migrated for version in later)

    def present(self, key: object, data: bytes) -> bytes:
        """Return a row as the declared class stores it: the row itself, or an earlier version's row upcast.

        Raises:
            Diverged: The row has a shape that no version has.
            MigrationFailed: A function of `@migrate` has failed.
        """
        if data.startswith(self.row_head):
            return data
        if self._upcast is None or not self._upcast.knows(tag_of(data)):
            raise self._stranger(key, data)
        return self._upcast.row(key, data)

    def canonical(self, data: bytes) -> bytes:
        """Return the only encoding of the attributes in a row.

        Raises:
            Unencodable: An attribute does not fit its annotation; the message names it.
        """
        try:
            restored = self._decode(data)[1:]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Unencodable(self._explain(reason_of(error))) from error
        values = dict(zip(self._names, restored, strict=True))
        return self._packed(values)

    def decode(self, key: object, data: bytes) -> dict[str, Any]:
        """Return the attributes of a row that `encode` wrote, and the key; also of an earlier version.

        Raises:
            Diverged: The row has a shape that no version has.
            MigrationFailed: A function of `@migrate` has failed.
            Unencodable: An attribute does not fit its annotation; the message names it.
        """
        try:
            row = self._decode(data)  # which checks the tag and the width
        except msgspec.MsgspecError as error:
            # The decoder checks tag and width, so a present row costs nothing more.
            present = self.present(key, data)
            if present is not data:
                return self.decode(key, present)
            raise Unencodable(self._explain(str(error))) from error
        return self._attribute_dict(row, key)

    def opened(self, key: object, data: bytes) -> bytes:
        """Return a row with its attributes readable; only a personal class has others."""
        return data

    def is_erased(self, key: object, data: bytes) -> bool:
        """Say whether a row belongs to an erased subject; only a row of a personal class can."""
        return False

    def plain(self, key: object, data: bytes) -> dict[str, Any]:
        """Return the attributes by name as MessagePack has them, without the key; also of an earlier version.

        Raises:
            Diverged: The row has a shape that no version has, or is not a row.
            MigrationFailed: A function of `@migrate` has failed.
        """
        try:
            return dict(zip(self._names, self._plain(data)[1:], strict=True))
        except msgspec.MsgspecError as error:
            present = self.present(key, data)
            if present is not data:
                return self.plain(key, present)
            raise Diverged(f"{self.name} {key!r} cannot be read: {error}") from error

    def _stranger(self, key: object, data: bytes) -> Diverged:
        tag = tag_of(data)
        stored = "no shape" if tag is None else f"the shape {tag:08x}"
        return Diverged(
            f"{self.name} {key!r} is stored in {stored}, and its class has {self.shape.tag:08x}; "
            "start this process again with the code of the driver; if it has this code, penstock verify looks for damage"
        )

    def _explain(self, complaint: str) -> str:
        """Replace msgspec's path into the row by the attribute's name."""
        index, misfit = place_of(complaint)
        if not index:  # without the tag
            return f"{self.name}: {misfit}"
        name = self._names[index - 1]
        return misfit.explained(self.attributes[name]).at(f"{self.name}.{name}")

    def _misfit(self, values: Mapping[str, Any], error: Exception) -> str:
        """Say which attribute is at fault."""
        missing = [name for name in self._all_names if name not in values]
        if missing:
            return f"{self.name} lacks its attribute {', '.join(missing)}"
        extra = [name for name in values if name not in self._all_names]
        if extra:
            first = extra[0]
            near = did_you_mean(first, self._all_names) if type(first) is str else ""
            return (
                f"{self.name} declares no attribute {', '.join(extra)}{f'{near} Or' if near else ';'} declare it in the "
                f"class with its type, as in {first}: int = 0"
            )
        for name in self._names:
            try:
                lower = self._lowers.get(name)
                _encode(lower(values[name]) if lower else values[name])
            except UNENCODABLE as unencodable:
                return f"{self.name}.{name}{place_in(values[name])}: {reason_of(unencodable)}"
        return f"{self.name}: {reason_of(error)}"

    def key_text(self, key: object) -> str:
        """Return a key's text.

        Raises:
            Unencodable: The value is not a key of this class.
        """
        if self.key_is_text and type(key) is str and 0 < len(key) < SHORT_KEY and key.isascii():
            return key
        text = None if self.key_plan is None else self.key_plan.text(key)
        if text is not None:
            return text  # type: ignore[no-any-return]
        try:
            return encode_key(key, self.key_annotation)
        except Unencodable as error:
            if self.row_head:
                raise
            raise Unencodable(  # until `bind`, keys are taken for text
                f"{error}; the type of its keys is known when {self.name} is in an App: make this "
                "reference after the App"
            ) from error

    def text_of_either(self, given: object) -> str:
        """Return the text of a key, or of the key of a reference to this class.

        Raises:
            Unencodable: It is neither.
        """
        return self.text_of(given) if isinstance(given, self.cls) else self.key_text(given)

    def check_new_key(self, key: object) -> None:
        """Refuse the key of a new entity that does not keep to its constraints.

        Raises:
            Unencodable: As it says.
        """
        if self.constrained_key is not self.key_annotation:
            try:
                msgspec.convert(key, self.constrained_key)
            except msgspec.ValidationError as error:
                raise Unencodable(f"{self.name}.{self.key_name}: {error}") from error

    def key_at(self, text: str) -> Any:
        """Return the key with this text.

        Raises:
            Unencodable: The text is not a key of this class.
        """
        if self.key_is_text and 0 < len(text) < SHORT_KEY:
            return text
        key = None if self.key_plan is None else self.key_plan.at(text)
        if key is not None:
            return key
        if self.key_annotation is int and len(text) < _SAFE_DIGITS and text.lstrip("-").isdecimal():
            value = int(text)
            if int.__repr__(value) == text:  # an int has one text
                return value
        return decode_key(text, self.key_annotation)

    def key_of(self, instance: object) -> EntityKey:
        """Return the entity key of an instance of this class, loaded or not."""
        key = _values_of(instance, "__dict__")[self.key_name]
        if self.key_is_text and type(key) is str:  # checked when the reference was made
            return EntityKey(self.prefix + key)
        return EntityKey(self.prefix + self.key_text(key))

    def text_of(self, value: object) -> str:
        """Return the text of the key of a reference to this class.

        Raises:
            Unencodable: `value` is not a reference to this class.
        """
        cls = type(value)
        if cls not in (self.cls, self.unloaded, self.asleep, self.copied):
            raise Unencodable(f"expected a reference, {self.name}(…), and got {shown(value)}")
        key = _values_of(value, "__dict__")[self.key_name]
        if self.key_is_text and type(key) is str:  # checked when the reference was made
            return key
        return self.key_text(key)


def _change_of(value: Any, stored: Any, annotation: Any) -> str:
    """Return the end of a message about an attribute, behind its name, that decoding changes."""
    path, change = changed_part(value, stored)
    what = name_of(annotation)
    return f"{path}: {what} {change}" if path else f" is {what} and {change}"


def row_head(tag: int, width: int) -> bytes:
    """Return the first bytes of each row with a tag and a number of attributes."""
    row = _encode((tag, *[None] * width))
    return row[: len(row) - width]


def _row_type(tag: int, annotations: tuple[Any, ...]) -> Any:
    return tuple[(Literal[tag], *annotations)]  # type: ignore[valid-type]


def _decoder_of(tag: int, annotations: tuple[Any, ...]) -> msgspec.msgpack.Decoder[tuple[Any, ...]]:
    return msgspec.msgpack.Decoder(_row_type(tag, annotations), dec_hook=decode_reference)
