"""The abstract interpretation of statements: flow-sensitive bindings of names, and fixed points.

A `Body` interprets the statements of a function in order. After branches the bindings are joined. The
body of a loop is interpreted twice, so that the bindings of one iteration reach the next. A called
function has its own body; a recursive function is interpreted until its result is a fixed point.
"""

import ast
import importlib.util
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.dataflow.analysis.call import Callee, Calls
from penstock.dataflow.analysis.frame import FunctionSummary, SummaryKey
from penstock.dataflow.analysis.library import Arguments
from penstock.dataflow.analysis.source import hints_of
from penstock.dataflow.analysis.value import (
    NOTHING,
    UNKNOWN,
    CollectionValue,
    DictValue,
    TypedValue,
    Value,
    constant,
    elements,
    is_unknown,
    join,
    of_type,
    origin_of,
    single,
)
from penstock.dataflow.graph import Origin

_ROUNDS_MAX: Final = 4  # a recursive function's result settles in two; this bounds the rest
_CONTEXTS_MAX: Final = 64  # readings of one function for one method, with its arguments
_DEPTH_MAX: Final = 3  # activations of one function at once, with different arguments
_IN_PLACE: Final[dict[type[ast.operator], str]] = {
    ast.Add: "__iadd__",
    ast.Sub: "__isub__",
    ast.Mult: "__imul__",
    ast.MatMult: "__imatmul__",
    ast.Div: "__itruediv__",
    ast.FloorDiv: "__ifloordiv__",
    ast.Mod: "__imod__",
    ast.Pow: "__ipow__",
    ast.LShift: "__ilshift__",
    ast.RShift: "__irshift__",
    ast.BitAnd: "__iand__",
    ast.BitOr: "__ior__",
    ast.BitXor: "__ixor__",
}


class Body(Calls):
    """A frame that interprets statements."""

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Interpret statements in order; statements after a possible exit are conditional."""
        left = 0
        for statement in statements:
            with self.branch(taken=left > 0):
                self._statement(statement)
            left += _leaves(statement)

    def _statement(self, node: ast.stmt) -> None:
        read: Callable[[Any], None] = getattr(
            self, f"_do_{type(node).__name__.lower()}", self._do_other
        )
        read(node)

    def follow(self, callee: Callee, arguments: Arguments) -> Value:
        """Analyse a called function, record its effects, and return its result."""
        shared = self.application
        names = _bind(callee, arguments, self.visible)
        key = _key(self, callee, names)
        if key not in shared.running and key not in shared.finished:
            names = self._narrow(callee, names)
            key = _key(self, callee, names)
        if key in shared.running:
            shared.guesses += 1
            shared.guessed.add(key)
            return shared.running[key]
        if key not in shared.finished:
            if sum(known[0] is callee.node for known in shared.running) >= _DEPTH_MAX:
                return UNKNOWN
            return self._settle(callee, names, key)
        self.merge(shared.finished[key])
        return shared.finished[key].returned

    def _settle(self, callee: Callee, names: Mapping[str, Value], key: SummaryKey) -> Value:
        """Interpret a function until its result is a fixed point."""
        shared = self.application
        guesses, shared.running[key] = shared.guesses, NOTHING
        summary = FunctionSummary()
        for _ in range(_ROUNDS_MAX):
            summary = self._activate(callee, names)
            if summary.returned == shared.running[key]:
                break
            shared.running[key] = summary.returned
        del shared.running[key]
        if key in shared.guessed:  # it is recursive, so its effects repeat
            shared.guessed.discard(key)
            summary = replace(
                summary, edges=tuple(replace(edge, looped=True) for edge in summary.edges)
            )
        final = not shared.running or shared.guesses == guesses
        if callee.parent is None and final:  # else it depends on results that may still change
            shared.finished[key] = summary
        self.merge(summary)
        return summary.returned

    def _narrow(self, callee: Callee, names: dict[str, Value]) -> dict[str, Value]:
        """Widen the arguments of a function that has too many contexts."""
        contexts, known = self.application.contexts, (callee.node, self.source, callee.parent)
        contexts[known] = contexts.get(known, 0) + 1
        if contexts[known] <= _CONTEXTS_MAX:
            return names
        plain = {name: _plain(value) for name, value in names.items()}
        return plain if contexts[known] <= 2 * _CONTEXTS_MAX else dict.fromkeys(names, UNKNOWN)

    def _activate(self, callee: Callee, names: Mapping[str, Value]) -> FunctionSummary:
        body = Body(self.application, self.source, callee.function, callee.owner, callee.parent)
        body.names.update(names)
        if isinstance(callee.node, ast.Lambda):
            body.returned = body.evaluate(callee.node.body)
        else:
            body.run(callee.node.body)
        if _is_generator(callee.node):
            body.returned = single(CollectionValue(body.yielded))
        return body.summary()

    def _do_expr(self, node: ast.Expr) -> None:
        self.evaluate(node.value)

    def _do_return(self, node: ast.Return) -> None:
        self.returned = join((self.returned, self.evaluate(node.value)))

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            if wait := _wait_behind_read(target, node.value):
                self._warn_of_wait(node, target, wait)
            self.assign(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.annotated(node.annotation, self.evaluate(node.value)))

    def _do_augassign(self, node: ast.AugAssign) -> None:
        before = self.evaluate(_as_read(node.target))
        value = join((before, self.evaluate(node.value)))
        if isinstance(node.target, ast.Name):
            homed = frozenset(atom for atom in before if _changes_in_place(atom, node.op))
            self.change(node.target, homed)
        for wait in _waits_in(node.value):
            self._warn_of_wait(node, node.target, wait)
        self.assign(node.target, value)

    def _warn_of_wait(
        self, statement: ast.Assign | ast.AugAssign, target: ast.expr, wait: ast.Await
    ) -> None:
        """Warn of an attribute that is read before a wait and written behind it, while other handlers may change it."""
        if self.source in self.application.exclusive or not _is_stored(target):
            return
        place, question = ast.unparse(target), ast.unparse(wait)
        later = ast.unparse(statement).replace(question, "reply").replace("(reply)", "reply")
        self.warn(
            wait,
            f"{place} is read before the wait, and written behind it: changes meanwhile are lost; "
            f"write `reply = {question}`, and in the next line `{later}`",
        )

    def _do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.names.pop(target.id, None)
            else:
                self.assign(target, NOTHING)

    def _do_if(self, node: ast.If) -> None:
        self.evaluate(node.test)
        self._part([node.body, node.orelse])

    def _part(self, ways: Iterable[Sequence[ast.stmt]]) -> None:
        """Interpret alternative branches, and join their bindings."""
        before, after = dict(self.names), []
        for way in ways:
            self.names = dict(before)
            with self.branch():
                self.run(way)
            after.append(self.names)
        self.names = _merged(after)

    def _do_for(self, node: ast.For) -> None:
        source = self.evaluate(node.iter)
        before, start = dict(self.names), None
        for _ in range(2):
            with self.loop():
                self.iterate(node.iter, node.target, source)
                if self.names == start:
                    break
                start = dict(self.names)
                self.run(node.body)
            self.names = _merged((before, self.names))
        self.run(node.orelse)

    def _do_while(self, node: ast.While) -> None:
        for _ in range(2):
            before = dict(self.names)
            with self.loop():
                self.evaluate(node.test)
                self.run(node.body)
            self.names = _merged((before, self.names))
        self.run(node.orelse)

    def _do_try(self, node: ast.Try) -> None:
        before = dict(self.names)
        self.run(node.body)
        between = _merged((before, self.names))
        after = [self.names]
        for handler in node.handlers:
            self.names = dict(between)
            self.evaluate(handler.type)
            if handler.name:
                self.names[handler.name] = single(TypedValue(BaseException, Origin.COMPUTED))
            with self.branch():
                self.run(handler.body)
            after.append(self.names)
        self.names = after[0]
        with self.branch(taken=bool(node.handlers)):
            self.run(node.orelse)
        self.names = _merged([self.names, *after[1:]])
        self.run(node.finalbody)

    _do_trystar = _do_try

    def _do_with(self, node: ast.With) -> None:
        for item in node.items:
            value = self.evaluate(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, join((value, *map(elements, value))))
        self.run(node.body)

    def _do_match(self, node: ast.Match) -> None:
        subject = self.evaluate(node.subject)
        before, after = dict(self.names), [dict(self.names)]
        for case in node.cases:
            self.names = dict(before)
            self._capture(case.pattern, subject)
            with self.branch():
                self.evaluate(case.guard)
                self.run(case.body)
            after.append(self.names)
        self.names = _merged(after)

    def _capture(self, pattern: ast.pattern, subject: Value) -> None:
        """Bind the names of a pattern; all parts of the subject are joined."""
        match pattern:
            case ast.MatchAs(pattern=inner, name=name):
                self._capture_as(inner, name, subject)
                return
            case ast.MatchStar(name=str(name)):
                self.bind(name, single(CollectionValue(subject)))
            case _:
                pass
        for child in ast.iter_child_nodes(pattern):
            if isinstance(child, ast.pattern):
                either = isinstance(pattern, ast.MatchOr)
                self._capture(child, subject if either else _inside(subject))
            elif isinstance(child, ast.expr):
                self.evaluate(child)

    def _capture_as(self, inner: ast.pattern | None, name: str | None, subject: Value) -> None:
        if isinstance(inner, ast.MatchClass):
            subject = self._narrowed(inner, subject)
        if inner is not None:
            self._capture(inner, subject)
        if name is not None:
            self.bind(name, subject)

    def _narrowed(self, pattern: ast.MatchClass, subject: Value) -> Value:
        classes = [getattr(atom, "thing", None) for atom in self.evaluate(pattern.cls)]
        kinds = join(of_type(cls, origin_of(subject)) for cls in classes if isinstance(cls, type))
        return kinds or subject

    def _do_functiondef(self, node: ast.FunctionDef) -> None:
        self.evaluate_all([*node.args.defaults, *node.args.kw_defaults])
        self.names[node.name] = self._at_lambda(node)

    def _do_global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.shared_names.update(node.names)

    _do_nonlocal = _do_global

    def _do_import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            module = sys.modules.get(name)
            bound = alias.asname or name
            self.names[bound] = UNKNOWN if module is None else constant(module)

    def _do_importfrom(self, node: ast.ImportFrom) -> None:
        name = "." * node.level + (node.module or "")
        package = self.function.__globals__.get("__package__") or ""
        full = importlib.util.resolve_name(name, package) if package or not node.level else name
        module = sys.modules.get(full)
        for alias in node.names:
            thing = getattr(module, alias.name, None) or sys.modules.get(f"{full}.{alias.name}")
            self.names[alias.asname or alias.name] = UNKNOWN if thing is None else constant(thing)
            if thing is not None:
                self.check(thing, alias.name, node)

    def _do_classdef(self, node: ast.ClassDef) -> None:
        self.names[node.name] = UNKNOWN

    def _do_other(self, node: ast.stmt) -> None:
        """Evaluate the expressions of `raise`, `assert` and other statements without bindings."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)


def _changes_in_place(atom: Any, operator: ast.operator) -> bool:
    """Whether `name += …` changes the value of an attribute; an immutable value, as a time, is replaced by another."""
    if not isinstance(atom, TypedValue) or atom.home is None:
        return False
    cls = typing.get_origin(atom.type) or atom.type
    return not isinstance(cls, type) or cls is object or hasattr(cls, _IN_PLACE[type(operator)])


def _waits_in(node: ast.AST) -> list[ast.Await]:
    """Return the waits of an expression; those of a function inside of it are not its own."""
    return [part for part in _parts_of(node) if isinstance(part, ast.Await)]


def _parts_of(node: ast.AST) -> Iterable[ast.AST]:
    """Yield the parts of an expression in the order of the text."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda):
            yield from _parts_of(child)


def _wait_behind_read(target: ast.expr, value: ast.expr) -> ast.Await | None:
    """Return the first wait in an expression that reads the target before it, as in `x = x + await …`."""
    text, is_read = ast.unparse(target), False
    for part in _parts_of(value):
        if isinstance(part, ast.Await) and is_read:
            return part
        is_read = is_read or (isinstance(part, ast.expr) and ast.unparse(part) == text)
    return None


def _is_stored(target: ast.expr) -> bool:
    """Whether a target is an attribute, or an element of an attribute, and not a name of the handler's own."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute)


def _plain(value: Value) -> Value:
    """Return a value with its typed atoms only."""
    return frozenset(atom for atom in value if isinstance(atom, TypedValue)) or UNKNOWN


def _by_name(item: tuple[str, Value]) -> str:
    return item[0]


def _key(frame: Body, callee: Callee, names: Mapping[str, Value]) -> SummaryKey:
    """Return the context of a summary: function, analysed method and arguments."""
    return callee.node, frame.source, callee.parent, tuple(sorted(names.items(), key=_by_name))


def _inside(value: Value) -> Value:
    return join((value, *map(elements, value)))


def _as_read(target: ast.expr) -> ast.expr:
    """Return the expression that reads the target of an augmented assignment."""
    read = ast.parse(ast.unparse(target), mode="eval").body
    for node in ast.walk(read):
        ast.copy_location(node, target)
    return read


def _merged(ways: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    merged: dict[str, Value] = {}
    for way in ways:
        for name, value in way.items():
            merged[name] = merged[name] | value if name in merged else value
    return merged


def _leaves(node: ast.stmt, *, looped: bool = False, guarded: bool = False) -> bool:
    """Whether a statement may skip the statements after it in a transaction that takes effect.

    An exception that nothing here catches undoes the transaction, so `raise` counts inside `try`
    only; `break` and `continue` count for the loop that they are in.
    """
    match node:
        case ast.Return():
            return True
        case ast.Raise():
            return guarded
        case ast.Break() | ast.Continue():
            return not looped
        case ast.FunctionDef() | ast.ClassDef():
            return False
        case ast.For() | ast.While():
            looped = True
        case ast.Try(handlers=handlers):
            guarded = guarded or bool(handlers)
        case _:
            pass
    return any(_leaves(inner, looped=looped, guarded=guarded) for inner in _statements_in(node))


def _statements_in(node: ast.AST) -> Iterable[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements_in(child)


def _is_generator(node: ast.FunctionDef | ast.Lambda) -> bool:
    pending: list[ast.AST] = list(node.body) if isinstance(node, ast.FunctionDef) else [node.body]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(part, ast.FunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(part))
    return False


def _bind(callee: Callee, arguments: Arguments, visible: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values of the parameters; annotations replace unknown values."""
    parameters = callee.node.args
    listed = [*parameters.posonlyargs, *parameters.args]
    names: dict[str, Value] = {}
    for parameter, value in zip(listed, arguments.positional, strict=False):
        names[parameter.arg] = value
    names.update(arguments.named)
    spread = join((arguments.rest, arguments.more))
    hints: Mapping[str, Any] = {}
    if callee.parent is None:
        hints = hints_of(callee.function, visible)
    for parameter in [*listed, *parameters.kwonlyargs]:
        value = names.get(parameter.arg, spread)
        hint = hints.get(parameter.arg, Any)
        if hint is not Any and (not value or any(map(is_unknown, value))):
            value = of_type(hint, origin_of(value))
        names[parameter.arg] = value
    if parameters.vararg is not None:
        beyond = join((*arguments.positional[len(listed) :], spread))
        names[parameters.vararg.arg] = single(CollectionValue(beyond))
    if parameters.kwarg is not None:
        known = {parameter.arg for parameter in (*listed, *parameters.kwonlyargs)}
        extra = join(value for name, value in arguments.named if name not in known)
        names[parameters.kwarg.arg] = single(DictValue(NOTHING, join((extra, spread))))
    return names
