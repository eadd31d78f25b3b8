"""The console's routes over HTTP: permissions and answers."""

import re
from datetime import datetime

import httpx
import pytest

from penstock.console.routes import load_assets
from tests.browser.running import RunningConsole
from tests.waiting import wait_for

KILL = "/console/api/kill-driver"
INTENT = {"Penstock-Console": "kill-driver"}


def test_page_lets_nothing_in_from_elsewhere(shop: RunningConsole) -> None:
    """The policy allows the gateway's own files only, and no script or style inside the page."""
    answer = shop.http.get("/console/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<style|\sstyle=|<script(?![^>]*\ssrc=)|\son\w+=", answer.text)
    assert not re.search(r"(src|href)=\"(https?:)?//", answer.text)


def test_file_that_a_browser_has_is_not_sent_again(shop: RunningConsole) -> None:
    """A file is answered with its tag, and with 304 if the request has that tag."""
    first = shop.http.get("/console/main.js")
    again = shop.http.get("/console/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert first.headers["content-type"].startswith("text/javascript")


def test_browser_keeps_the_files_of_a_version(shop: RunningConsole) -> None:
    """The page is asked for each time, and names its files by a folder that another version does not have."""
    page = shop.http.get("/console/")
    assert page.headers["cache-control"] == "no-cache"
    (folder,) = set(re.findall(r'(?:src|href)="(\w+)/[\w-]+\.\w+"', page.text))
    assert not re.search(r'(?:src|href)="[\w-]+\.\w+"', page.text)
    kept = shop.http.get(f"/console/{folder}/main.js")
    assert "immutable" in kept.headers["cache-control"]
    assert kept.content == shop.http.get("/console/main.js").content
    assert shop.http.get("/console/0123456789abcdef/main.js").status_code == 404


@pytest.mark.parametrize(
    "path", ["no-such.js", "..%2froutes.py", "%2e%2e/routes.py", "api/no-such"]
)
def test_only_the_console_s_files_are_served(shop: RunningConsole, path: str) -> None:
    """For any path, only the listed files are answered."""
    assert shop.http.get(f"/console/{path}").status_code == 404


def test_every_file_is_used() -> None:
    """Each file is named by another one, and each name that is used is a file."""
    assets = load_assets()
    named = {"index.html"}
    for asset in assets.values():
        text = asset.content.decode()
        named |= set(re.findall(r'(?:from "\./|src="|href=")([\w.-]+\.(?:js|css|svg))"', text))
    assert named == set(assets)


def test_scripts_keep_the_limit_of_length() -> None:
    """No script outgrows the limit of the Python files."""
    assets = load_assets()
    lengths = {name: asset.content.count(b"\n") for name, asset in assets.items()}
    assert {name for name, length in lengths.items() if length > 400} == set()


def test_plan_is_what_the_compiler_found(shop: RunningConsole) -> None:
    """The drawn graph is the graph that `penstock explain` prints."""
    plan = shop.http.get("/console/api/plan").json()
    assert plan["app"] == "shop"
    assert [one["name"] for one in plan["operators"]][:3] == ["Item", "User", "Order"]


def test_status_adds_up(shop: RunningConsole) -> None:
    """Accepted requests are the processed and the waiting ones; every process is named."""
    shop.call("Item/status/create", price=1)
    status = shop.http.get("/console/api/status").json()
    assert status["accepted"] == status["answered"] + status["lag"]
    assert status["answered"] > 0
    assert {one["role"] for one in status["processes"]} >= {"driver", "gateway"}
    assert all(one["memory_bytes"] > 0 for one in status["processes"])
    assert datetime.fromisoformat(status["now"]).timestamp() == pytest.approx(
        status["now_us"] / 1e6
    )
    wait_for(
        lambda: shop.http.get("/console/api/status").json()["view_epoch"] >= 0,
        "the view has an epoch",
    )
    seen = shop.http.get("/console/api/status").json()
    assert seen["view_epoch"] <= shop.http.get("/console/api/status").json()["epoch"]


def test_epochs_come_once(shop: RunningConsole) -> None:
    """A question after an epoch gets only newer epochs."""
    shop.call("Item/epochs/create", price=1)
    epochs = [one["epoch"] for one in shop.http.get("/console/api/epochs").json()]
    assert epochs == sorted(set(epochs))
    shop.call("Item/epochs/add", amount=1)
    later = shop.http.get(f"/console/api/epochs?after={epochs[-1]}").json()
    assert all(one["epoch"] > epochs[-1] for one in later)
    assert shop.http.get("/console/api/epochs?after=soon").status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Penstock-Console": "something-else"},
        {**INTENT, "Origin": "http://elsewhere.example"},
        {**INTENT, "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_page_of_another_site_cannot_kill(shop: RunningConsole, headers: dict[str, str]) -> None:
    """Only the console's own page may kill the driver."""
    answer = shop.http.post(KILL, headers=headers)
    assert answer.status_code == 403
    assert isinstance(answer, httpx.Response)


def test_kill_is_a_post(shop: RunningConsole) -> None:
    """Following a link never kills anything."""
    assert shop.http.get(KILL, headers=INTENT).status_code == 405
