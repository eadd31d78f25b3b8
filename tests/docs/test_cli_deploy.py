"""`penstock deploy` and `penstock rollback` change the code while epochs run, and say when it is in force."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, msgpack

from penstock.base.ids import Epoch, RequestId
from penstock.cli.main import execute
from penstock.cli.options import AppOptions, with_deployed_code
from penstock.deployment.loading import locate
from penstock.deployment.source import code_of
from penstock.errors import RequestError
from penstock.journal.deployments import Deployments
from penstock.journal.replies import find_reply
from penstock.log.api import Entry
from penstock.model.request import Request, encode_request
from tests.deployments import kept_imports, stored_code, write_version
from tests.differential.inline import ONLY, Inline

__all__ = ["kept_imports"]

JAR = """
    from penstock import App, Entity, key

    class Jar(Entity):
        name: str = key()
        beans: {beans}

        def put(self) -> float:
            self.beans += {step}
            return self.beans

    app = App("jars", Jar)
"""
FIRST, SECOND = JAR.format(beans="int = 0", step=1), JAR.format(beans="int | float = 0.0", step=0.5)
UNFIT = JAR.format(beans="str = ''", step="'x'")

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kept_imports")]


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[Inline]:
    """Return a driver with an epoch of the first version, whose deployment is recorded."""
    spec = write_version(tmp_path / "1", "jars", FIRST)
    (tmp_path / "data").mkdir()
    runtime = Inline(tmp_path / "data", 1, spec, "jars")
    Deployments(tmp_path / "data" / "journal").record(
        Epoch(0), 0, stored_code(tmp_path / "data", spec), {}
    )
    for number, method in enumerate(["create", "put"]):
        body = encode_request(Request("Jar", "tin", method, Raw(b"\x90"), Raw(b"\x80")))
        runtime.log.append([Entry(RequestId(f"r{number}"), body, b"", 0)])
    runtime.advance(runtime.log.end())
    yield runtime
    runtime.close()


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Execute a command and return its answer."""
    assert execute([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_deploy_and_rollback_say_since_when_the_code_is_in_force(
    inline: Inline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal code is no deployment; a rollback takes the archive of the former code, and may be refused."""
    second = write_version(tmp_path / "2", "jars", SECOND)
    data = ["--data", str(tmp_path / "data")]
    with inline.following():
        assert execute(["deploy", second, *data]) == 0
        told = capsys.readouterr().out
        assert "Deployment 2 is in force since epoch 2." in told
        assert "beans" in told
        assert answer(capsys, "deploy", second, *data)["changed"] is False
        rows = answer(capsys, "apps", *data)
        assert [(row["number"], row["since"], row["in_force"]) for row in rows] == [
            (1, 0, False),
            (2, 2, True),
        ]
        assert execute(["rollback", *data]) == 2
        assert "beans" in capsys.readouterr().err
        assert execute(["rollback", *data, "--to", "7"]) == 2
        assert "there is no deployment 7" in " ".join(capsys.readouterr().err.split())
    assert len(Deployments(tmp_path / "data" / "journal").every()) == 2


def test_rollback_deploys_the_former_code_again(
    inline: Inline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source files need not exist, also for a process that is started again."""
    other = write_version(tmp_path / "2", "jars", FIRST.replace("+= 1", "+= 2"))
    data = ["--data", str(tmp_path / "data")]
    with inline.following():
        assert answer(capsys, "deploy", other, *data)["number"] == 2
        Path(other).unlink()
        options = with_deployed_code(AppOptions(app=["gone.py"], data=tmp_path / "data"))
        assert options.spec is not None
        code = Deployments(tmp_path / "data" / "journal").every()[-1].code
        assert code_of(locate(options.spec))[0].archive == code.archive
        told = answer(capsys, "rollback", *data)
        assert (told["number"], told["since"], told["behind"]) == (3, 3, [])
        assert answer(capsys, "rollback", *data, "--to", "2")["number"] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (UNFIT, "cannot read the entities"),
        ("import nowhere", "nowhere"),
        (FIRST.replace('"jars"', '"cups"'), "cups"),
    ],
)
def test_code_that_does_not_fit_is_refused_before_anything_changes(
    inline: Inline,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    message: str,
) -> None:
    """The exit code is 2, the message has the reason, and the log has no record."""
    end = inline.log.end()
    wrong = write_version(tmp_path / "2", "jars", text)
    assert execute(["deploy", wrong, "--data", str(tmp_path / "data")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert inline.log.end() == end


def test_without_a_driver_the_deployment_waits_in_the_log(
    inline: Inline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says so, and the next driver executes it."""
    second = write_version(tmp_path / "2", "jars", SECOND)
    assert execute(["deploy", second, "--data", str(tmp_path / "data")]) == 0
    assert "No driver runs. The deployment is durable at position 2" in capsys.readouterr().out
    inline.advance(inline.log.end())
    assert [each.since for each in Deployments(tmp_path / "data" / "journal").every()] == [0, 2]


def test_arguments_of_the_former_code_are_checked_by_name(
    inline: Inline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request that was appended for the former signature runs if its names fit, else its error names the argument."""
    other = write_version(
        tmp_path / "2", "jars", FIRST.replace("put(self)", "put(self, more: int = 5)")
    )
    with inline.following():
        assert answer(capsys, "deploy", other, "--data", str(tmp_path / "data"))["number"] == 2
    bodies = [
        encode_request(Request("Jar", "tin", "put", Raw(b"\x90"), Raw(msgpack.encode(named))))
        for named in ({}, {"less": 1})
    ]
    lsns = inline.log.append(
        [Entry(RequestId(f"s{number}"), body, b"", 0) for number, body in enumerate(bodies)]
    )
    inline.advance(inline.log.end())
    fits, unfit = (find_reply(inline.journal, (ONLY, lsn)) for lsn in lsns)
    assert fits.value() == 2
    with pytest.raises(RequestError, match="less"):
        unfit.value()
