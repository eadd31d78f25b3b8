"""The page on views is true: its program runs, its commands exist, and its tables are those of the code."""

import json
import re
from pathlib import Path

from penstock.process.config import TargetSettings, load_config
from penstock.process.view_files import ViewState
from penstock.process.view_standing import STARTING, STOPPED, UNDECLARED
from penstock.views.change_message import Frame, Source
from penstock.views.kafka_target import KafkaTarget
from tests.checkout import TOP
from tests.docs.test_pages import run_python, snippets

PAGE = (TOP / "docs" / "VIEWS.md").read_text()


def test_program_of_the_page_runs(tmp_path: Path) -> None:
    """The application and the test of its row function are one program; the query of the other one can be a table."""
    store, row_test, shop, pantry = snippets("docs/VIEWS.md")
    (tmp_path / "store.py").write_text(f"{store}\n{row_test}")
    (tmp_path / "shop.py").write_text(shop)
    (tmp_path / "pantry.py").write_text(pantry)
    run_python(
        "import runpy; assert list(runpy.run_path('store.py')['app'].views) == ['reporting']; "
        "from shop import app; from penstock.views.deployment_check import query_findings; "
        "assert list(query_findings(app)) == []; from pantry import app; "
        "assert app.views['changes'].target.kind == 'kafka'",
        tmp_path,
    )


def test_page_names_every_state() -> None:
    """The table of states is complete."""
    table = PAGE.partition("## States")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(told) == sorted([*ViewState, STARTING, STOPPED, UNDECLARED])


def test_settings_of_the_page_are_read(tmp_path: Path) -> None:
    """The blocks of settings give each view its address, and the one in Kafka its properties."""
    texts = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "penstock.toml"
    path.write_text("\n".join(texts))
    config = load_config(data=tmp_path, file=path)
    assert config.target_settings("reporting").address().startswith("postgresql://")
    changes = config.target_settings("changes")
    KafkaTarget(changes.address(), tmp_path, "changes", changes.properties)  # it can be read
    assert changes.properties["sasl.password_file"] == "/run/secrets/kafka"
    assert config.target_settings("archive") == TargetSettings(
        url_file=Path("/run/secrets/archive-url")
    )


def test_message_of_the_page_is_that_of_the_code() -> None:
    """The example of a message has the fields that the code writes, and no others."""
    (text,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shown = json.loads(text)
    frame = Frame(Source("pantry", "changes"), 17, 1_767_323_045_000_006, 0, is_fill=False)
    made = json.loads(frame.change("Jar", b"{}", b"{}", b"{}"))
    assert list(made) == list(shown)
    times = {"version": shown["source"]["version"]}
    assert {**made["source"], **times} == shown["source"]
    assert (made["op"], made["transaction"]) == (shown["op"], shown["transaction"])
