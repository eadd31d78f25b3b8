"""Rules of style that no linter knows (after tigerbeetle's `src/tidy.zig`)."""

import ast
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
SRC = TOP / "src"
FILES = sorted(SRC.rglob("*.py"))
PROGRAMS = sorted(
    path for name in ("tests", "examples", "benchmarks") for path in (TOP / name).rglob("*.py")
)
PURE = {"errors", "base", "model", "dataflow", "engine"}
BOUNDARIES = {
    "cli",
    "deployment",
    "gateway",
    "orders",
    "process",
    "runtime",
}  # the only rooms that may catch everything
THREADS = {
    "files/durable.py",  # it goes to the caller
    "journal/tail.py",
    "log/kafka.py",
    "log/regular_look.py",
}  # a failure ends their thread alone
USER_CODE_ENDS = {  # where the errors of user code are recorded, and a handler's changes are put back
    "base/start.py",  # open files of a user, at the end of a process
    "engine/execute.py",
    "engine/failure.py",
    "engine/isolation.py",
    "engine/streams/resumption.py",
    "exchange/cells.py",  # records and validators of a user, which a row of an import makes
    "exchange/states.py",
    "files/key_service.py",  # the service of a user
    "model/versions/widening.py",  # factories of defaults
    "model/upcast.py",  # functions with @migrate
    "deployment/code_in_force.py",  # the modules of a deployment
    "effects/callers.py",  # effects, in a process of their own
    "testing/kit.py",  # fakes of effects
    "views/tables.py",  # row functions, in a child process
}
UNSTABLE = {"hash", "id", "open", "input", "eval", "exec"}  # differ between two runs
GENERATES = {"model/entity_type.py"}  # its `exec` gets a source that the names of a class determine
SETS = {"set", "frozenset"}
ORDERLESS = {*SETS, "sorted", "sum", "any", "all", "len", "min", "max"}
ORDERING = {
    "list",
    "tuple",
    "join",
    "enumerate",
    "map",
    "zip",
    "iter",
    "next",
    "fromkeys",
    "extend",
}
VAGUE = {"found", "kind", "one"}


@pytest.fixture(scope="module", autouse=True)
def nodes() -> Iterator[None]:
    """Free the nodes after the last test: a million objects slow each later collection of garbage."""
    yield
    nodes_of.cache_clear()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return the module, and all its nodes, in the order of `ast.walk`."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def complaints(paths: Iterable[Path], check: Callable[[Path], Iterable[str]]) -> list[str]:
    """Return the complaints of a check about files, each with the name of its file."""
    return [f"{path.relative_to(TOP)}: {complaint}" for path in paths for complaint in check(path)]


def layer_of(path: Path) -> str:
    return path.relative_to(SRC).parts[1].removesuffix(".py")


def is_anything(kind: ast.expr | None) -> bool:
    match kind:
        case None | ast.Name(id="Exception" | "BaseException" | "ANYTHING"):
            return True
        case ast.Tuple(elts=kinds):
            return any(is_anything(one) for one in kinds)
        case _:
            return False


def catches_everything(handler: ast.ExceptHandler) -> bool:
    match handler.body[-1]:
        case ast.Raise(exc=None):
            return False  # it tidies up and lets the error pass
        case _:
            return is_anything(handler.type)


def unstable(node: ast.AST) -> list[str]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in UNSTABLE:
            return [f"line {node.lineno}: {name}() differs between two runs"]
        case _:
            return []


def is_set(node: ast.AST | None, names: set[str]) -> bool:
    """Say whether an expression or an annotation is of a set, as far as that is written there."""
    match node:
        case ast.Set() | ast.SetComp():
            found = True
        case ast.Subscript(value=ast.Name(id="Final"), slice=inner):
            found = is_set(inner, names)
        case ast.Call(func=ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name))):
            found = name in SETS
        case ast.Subscript(value=ast.Name(id=name)):
            found = name in SETS
        case ast.BinOp(left=left, right=right, op=ast.BitAnd() | ast.BitOr() | ast.Sub()):
            found = any(is_set(one, names) or is_keys(one) for one in (left, right))
        case ast.IfExp(body=body, orelse=other):
            found = is_set(body, names) or is_set(other, names)
        case ast.Name() | ast.Attribute():
            found = ast.unparse(node) in names
        case _:
            found = False
    return found


def is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".keys")


def sets_in(path: Path) -> set[str]:
    """Return the names that are given a set, or declared to be one."""
    found: set[str] = set()
    for node in nodes_of(path):
        match node:
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
                if is_set(value, found):
                    found.add(ast.unparse(target))
            case ast.AnnAssign(target=target, annotation=kind, value=value):
                if is_set(kind, found) or is_set(value, found):
                    found.add(ast.unparse(target))
            case ast.arg(arg=name, annotation=kind) if is_set(kind, found):
                found.add(name)
            case _:
                pass
    return found


def iterated(path: Path) -> list[ast.expr]:
    """Return the expressions whose order may reach a result."""
    free = orderless_parts(path)
    found: list[ast.expr] = []
    for node in nodes_of(path):
        match node:
            case ast.For(iter=order):
                found.append(order)
            case ast.comprehension(iter=order) | ast.Starred(value=order) if node not in free:
                found.append(order)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                name in ORDERING and node not in free
            ):
                found += node.args[:1] if name == "fromkeys" else node.args
            case _:
                pass
    return found


def orderless_parts(path: Path) -> set[ast.AST]:
    """Return the parts of a module from which sets are made, or something without an order."""
    found: set[ast.AST] = set()
    for node in nodes_of(path):
        match node:
            case ast.SetComp() | ast.Set():
                found.update(ast.walk(node))
            case ast.Call(func=ast.Name(id=name)) if name in ORDERLESS:
                for one in node.args:
                    found.update((one, *ast.iter_child_nodes(one)))
            case _:
                pass
    return found


def vague_names(path: Path) -> list[str]:
    """Return the variables and parameters whose names fit any value.

    A field of a class may be called `kind`, because several formats that we store and send have it.
    """
    found: list[str] = []
    fields: set[ast.AST] = set()
    for node in nodes_of(path):  # a class comes before its fields
        match node:
            case ast.ClassDef(body=body):
                fields.update(one.target for one in body if isinstance(one, ast.AnnAssign))
            case ast.Name(id=name, ctx=ast.Store()) if not (name == "kind" and node in fields):
                found.append(name)
            case (
                ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.ExceptHandler(name=str(name))
            ):
                found.append(name)
            case _:
                pass
    return [name for name in found if name in VAGUE]


def test_only_boundaries_catch_everything() -> None:
    """An inner module names the exceptions that it catches; others pass through it."""

    def check(path: Path) -> Iterable[str]:
        handlers = (node for node in nodes_of(path) if isinstance(node, ast.ExceptHandler))
        return [f"line {node.lineno}" for node in handlers if catches_everything(node)]

    inner = [
        path
        for path in FILES
        if layer_of(path) not in BOUNDARIES
        and str(path.relative_to(SRC / "penstock")) not in USER_CODE_ENDS | THREADS
    ]
    assert complaints(inner, check) == []


def test_core_is_stable() -> None:
    """Nothing in the core differs between two runs of the same program."""

    def check(path: Path) -> Iterable[str]:
        return [complaint for node in nodes_of(path) for complaint in unstable(node)]

    core = [
        path
        for path in FILES
        if layer_of(path) in PURE and str(path.relative_to(SRC / "penstock")) not in GENERATES
    ]
    assert complaints(core, check) == []


def test_no_order_of_a_set_is_relied_on() -> None:
    """Code that iterates over a set sorts it, or gives the same for any order."""
    shared = {  # sets of a module that other modules may import
        target
        for path in FILES
        for one in ast.iter_child_nodes(nodes_of(path)[0])
        if isinstance(one, ast.AnnAssign) and is_set(one.value, set())
        for target in [ast.unparse(one.target)]
        if not target.startswith("_")
    }

    def check(path: Path) -> Iterable[str]:
        names = sets_in(path) | shared
        found = (one for one in iterated(path) if is_set(one, names))
        return [f"line {one.lineno}: {ast.unparse(one)}" for one in found]

    assert complaints(FILES, check) == []


def test_names_say_what_they_hold() -> None:
    """A variable or parameter has the noun of its value, such as `row` or `entity_type`."""
    assert complaints(FILES, vague_names) == []


def taken_fields(path: Path) -> list[str]:
    """Return the keys of `extra` that `logging` refuses with a KeyError, because each line has such a field."""
    taken = {*vars(logging.makeLogRecord({})), "message", "asctime"}
    found: list[str] = []
    for node in nodes_of(path):
        match node:
            case ast.keyword(arg="extra", value=ast.Dict(keys=keys)):
                pass
            case ast.Assign(targets=[ast.Name(id="extra")], value=ast.Dict(keys=keys)):
                pass
            case _:
                continue
        found += [key.value for key in keys if isinstance(key, ast.Constant) and key.value in taken]
    return found


def test_fields_of_log_lines_are_free() -> None:
    """A line about a failure must not fail itself."""
    assert complaints(FILES, taken_fields) == []


def test_inner_init_files_are_empty() -> None:
    """A package has no second door: only the two packages that users import hold anything, and one says where its names are."""
    public = [SRC / "penstock" / name for name in ("", "testing", "client")]
    inner = [path for path in FILES if path.name == "__init__.py" and path.parent not in public]
    assert [path for path in inner if path.read_text()] == []


def test_every_test_states_its_property() -> None:
    """The docstring of each test states its property."""

    def check(path: Path) -> Iterable[str]:
        functions = (node for node in nodes_of(path) if isinstance(node, ast.FunctionDef))
        tests = (node for node in functions if node.name.startswith("test_"))
        return [node.name for node in tests if ast.get_docstring(node) is None]

    assert complaints(sorted((TOP / "tests").rglob("test_*.py")), check) == []
