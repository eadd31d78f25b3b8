"""Random requests with deployments, moves of buckets and erasures between them: driver and workers equal one thread.

Drivers are killed in between: at each step of an epoch, and at each call that changes a file.
"""

import itertools
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock import App
from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.base.subject_keys import MemoryKeys
from penstock.deployment.archives import Archives, pack
from penstock.deployment.code_in_force import code_in_force, unpacked
from penstock.deployment.side_modules import load_aside
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.journal.deployments import Deployments
from penstock.log.api import Entry
from penstock.model.control import Deploy, DeployedCode, encode_control
from penstock.model.request import decode_request, encode_request
from penstock.model.sealed_value import subject_of
from penstock.orders.erasure_order import request_erasure
from penstock.orders.partitions import append_move
from penstock.process import fault
from penstock.runtime.local.runtime import LocalRuntime
from penstock.state.digest import digest_of_mapping
from tests import forked
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.killed_driver import CALL, PROGRAM, opened
from tests.differential.programs import beside_one_thread, drawn
from tests.differential.simulation import Answer
from tests.differential.test_schema_twins import KEYS, REQUESTS, STEPS, Step, Twin

RENAMED = "Product"
_numbers = itertools.count()

SOURCE = """
from penstock import App, Entity, key, migrate, was

NAMES = {names}

class {item}(Entity{was}):
    item_id: str = key()
{attributes}

    def look(self) -> dict[str, float | None]:
        return {{name: getattr(self, name) for name in NAMES}}

    def grow(self) -> None:
        for name, value in self.look().items():
            setattr(self, name, (value or 0) + 1)

    def take(self, other: "{item}") -> dict[str, float | None]:
        theirs = other.look()
        for name, value in theirs.items():
            setattr(self, name, value)
        return theirs

    def remove(self) -> None:
        self.delete()

class Person(Entity, personal=True):
    name: str = key()
    visits: int = 0

    def visit(self) -> int:
        self.visits += 1
        return self.visits

{functions}
{extra}
app = App("shop", {item}, Person{marked})
"""
EXTRA = """
class Extra(Entity):
    name: str = key()
    count: int = 0

    def grow(self) -> int:
        self.count += 1
        return self.count
"""


def source_of(twin: Twin, *, has_extra: bool = True, renamed: bool = False) -> str:
    """Return the module of the present version; another class may be missing, and the class may be renamed."""
    item = RENAMED if renamed else "Item"
    lines = []
    for name, annotation in twin.declared.items():
        former = twin.former.get(name)
        default = f"was({former!r}, default={twin.number})" if former else str(twin.number)
        text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        lines.append(f"    {name}: {text} = {default}")
    functions = [
        f"@migrate({item}, since={since})\ndef m{since}(old):\n    return {made(None)!r}\n"
        for since, made in twin.functions.items()
    ]
    return SOURCE.format(
        item=item,
        was=', was="Item"' * renamed,
        names=sorted(twin.declared),
        attributes="\n".join(lines),
        functions="\n".join(functions),
        extra=EXTRA if has_extra else "",
        marked=", Extra" * has_extra + "".join(f", m{since}" for since in twin.functions),
    )


class Rig:
    """A data directory, the code of each version, and the applications of the oracle."""

    def __init__(self, data: Path, partitions: int, width: int) -> None:
        self.data, self.module = data, f"twinshop{next(_numbers)}"
        self.apps: dict[str, App] = {}
        self.keys = KeyFile(data / SUBJECT_KEYS)
        self.keys.create()
        self.tree = self.keys.tree()
        self.first = self.code(source_of(Twin()))
        self.spec = unpacked(data, self.first).spec
        self.sizes = partitions, width
        self.runtime = opened(data, self.spec, self.sizes)
        Deployments(data / "journal").record(Epoch(0), 0, self.first, {})
        self.serial = LocalRuntime(
            self.apps[self.first.archive], secret=self.runtime.journal.secret
        )
        self.count = 0

    def code(self, source: str) -> DeployedCode:
        """Store a version, and load it for the oracle."""
        archive = Archives(self.data).put(pack({f"{self.module}.py": source.encode()}))
        code = DeployedCode(archive, self.module, "app", "3", {})
        self.apps[archive] = load_aside(unpacked(self.data, code)).app
        self.apps[archive].use_keys(self.keys.keys())
        return code

    def append(self, body: bytes, hint: bytes = b"", *, is_control: bool = False) -> None:
        """Append a record."""
        name = RequestId(f"r{self.count}")
        self.runtime.log.append([Entry(name, body, hint, self.count, is_control)])
        self.count += 1

    def request(self, method: str, name: str, other: str) -> None:
        """Append a request, as a caller with any version encodes it."""
        app = self.apps[self.first.archive]
        arguments: tuple[Any, ...] = ()
        if method == "take":
            arguments = (app.entities["Item"].of_text(other),)
        body, hint = app.request("Item", name, method, arguments)
        if self.count % 3 == 0:  # which only versions with the renamed class know
            body = encode_request(msgspec.structs.replace(decode_request(body), entity=RENAMED))
        self.append(body, hint)

    def extra(self, method: str) -> None:
        """Append a request to the class that some versions lack."""
        app = self.apps[self.first.archive]
        self.append(*app.request("Extra", "x", method))

    def person(self, method: str, name: str) -> None:
        """Append a request to a person, encrypted with the present key."""
        app = self.apps[self.first.archive]
        self.append(*app.request("Person", name, method))

    def erase(self, name: str) -> None:
        """Append the erasure of a person, who may not exist; a repetition appends nothing."""
        subject = EntityKey(f"Person/{name}")
        request_erasure(self.runtime.log, subject, self.keys.tree().generation(subject))
        self.count = self.runtime.log.end()

    def deploy(self, code: DeployedCode, *, drops: bool = True) -> None:
        """Append a deployment, which may drop the class that some versions lack."""
        dropped = ("Extra",) if drops else ()
        self.append(encode_control(Deploy(code, dropped)), is_control=True)

    def change(self, former: int, codes: list[DeployedCode]) -> None:
        """Append a deployment of former code, or an erasure; a negative number moves buckets to so many partitions."""
        if former > 2:
            self.erase("ada")
        elif former < 0:
            append_move(self.runtime.log, -former)
            self.count += 1
        else:
            self.deploy(codes[former % len(codes)])

    def advance(self, end: str) -> None:
        """Process the log until a driver ends as `end` says, at once or at a fault, and start the next one."""
        if end == ON:
            self.runtime.advance(self.count)
        elif end == RESTART:
            self.runtime.advance(self.count - 1)
            self.runtime.spec = (code_in_force(self.data) or (self.spec,))[0]
            self.runtime.restart()
        else:
            self.runtime.close()
            arguments = (self.data, self.spec, *self.sizes, self.count, end, "shop")
            child = forked.run(PROGRAM, *arguments)
            assert child.returncode in (0, -signal.SIGKILL), child.stderr
            self.runtime = opened(self.data, self.spec, self.sizes)

    def check(self) -> None:
        """Compare replies, state and stores with those of one thread."""
        records = self.runtime.log.read(Lsn(0), Lsn(self.count))
        memory = MemoryKeys(self.tree)
        for app in self.apps.values():
            app.use_keys(memory)
        expected = self.serial.replay(records, self.apps)
        answers = answers_of(self.runtime.journal)
        sealed = {
            each.request_id
            for each in answers
            if subject_of(each.data) is not None or each.request_id.startswith("erase~~")
        }
        given = [Answer(reply.request_id, reply.error, reply.data) for reply in expected]
        assert [_comparable(each, sealed) for each in answers] == [
            _comparable(each, sealed) for each in given
        ]
        assert state_of(self.runtime.journal) == self.serial.state
        digest = digest_of_stores(self.runtime.config, self.runtime.journal)
        assert digest == digest_of_mapping(self.serial.state)


def _comparable(answer: Answer, unread: set[str]) -> tuple[str, str | None, bytes]:
    """Return an answer; the message of a refused deployment names the data directory, and some replies are encrypted."""
    differs = answer.error in ("class-changed", "config", "erased") or answer.request_id in unread
    return answer.request_id, answer.error, b"" if differs else answer.data


ON, RESTART = "on", "restart"
ENDS = st.one_of(
    st.just(ON),
    st.just(RESTART),
    st.builds(
        "{}@{}".format, st.sampled_from((*fault.STEPS, *fault.CONTROL_STEPS)), st.integers(1, 2)
    ),
    st.builds(f"{CALL}@{{}}".format, st.integers(0, 150)),
)


@beside_one_thread
@drawn(10)
@given(
    REQUESTS,
    STEPS,
    st.lists(st.tuples(st.integers(0, 4), st.integers(-4, 4), ENDS), max_size=8),
    st.integers(1, 4),
    st.integers(1, 9),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=5, max_size=5),
)
def test_deployments_between_requests_equal_one_thread(
    first: list[tuple[str, str, str]],
    steps: list[Step],
    events: list[tuple[int, int, str]],
    partitions: int,
    width: int,
    forms: list[tuple[bool, bool, bool]],
) -> None:
    """At any place in the order, with rollbacks, moves, restarts, kills and any bounds of epochs, the outcome is the oracle's.

    Some versions lack a class: a deployment may drop it, or is refused, and its entities are there again later. Some
    versions have renamed the other class; requests with either name reach it there.
    """
    twin = Twin()
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), partitions, width)
        try:
            codes = [rig.first]
            for place, step in enumerate(steps):  # before a worker runs, which exchanges modules
                twin.deploy(step)
                has_extra, _, renamed = forms[place]
                codes.append(rig.code(source_of(twin, has_extra=has_extra, renamed=renamed)))
            rig.extra("create")
            rig.person("create", "ada")
            rig.person("create", "bob")
            for request in [*(("create", name, name) for name in KEYS), *first]:
                rig.request(*request)
            for place, step in enumerate(steps):
                rig.deploy(codes[place + 1], drops=forms[place][1])
                rig.extra("grow")
                rig.person("visit", "ada")
                rig.person("visit", "bob")
                for request in step.requests:
                    rig.request(*request)
                for at, former, end in events:
                    if at % len(steps) == place:
                        rig.change(former, codes[: place + 2])
                        rig.advance(end)
            rig.runtime.advance(rig.count)
            rig.check()
        finally:
            rig.runtime.close()


def test_class_without_entities_keeps_its_version() -> None:
    """A class whose entities are all deleted was stored: its next version is the second, for driver and oracle alike."""
    look = ("look", "i1", "i1")
    plain = Step([], renamed=False, widened=False, migrated=False, requests=[])
    emptying = [look, ("remove", "i3", "i1"), ("remove", "i2", "i1"), look, look, look]
    test_deployments_between_requests_equal_one_thread.hypothesis.inner_test(
        first=[look] * 8,
        steps=[replace(plain, requests=emptying), plain, replace(plain, migrated=True)],
        events=[],
        partitions=1,
        width=1,
        forms=[(False,) * 3, (False,) * 3, (True, False, False)],
    )
