"""The how-to pages are true: their programs and commands run against a running box office."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.harness.ports import free_port
from penstock import Client
from tests.browser.running import RunningConsole
from tests.checkout import TOP
from tests.gateway_thread import RunningGateway
from tests.own_certificate import own_certificate
from tests.waiting import wait_for

pytestmark = pytest.mark.long

HOWTO = TOP / "docs" / "howto"
PAGES = {path.stem: path for path in HOWTO.glob("*.md")}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SEPARATE = {"index", "proxy", "spark", "hosts", "kubernetes", "strangle"}
"""Pages whose commands have a test of their own."""
PRINTED = {"idempotent-calls": "42.5", "delayed-requests": '"scheduled"', "pagination": '"c013"'}
"""A part of the commands' output, for the pages that describe it."""
METRIC = re.compile(r"\bpenstock_[a-z0-9_]+")
COLUMNS = 24


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """Return the language and the text of each code block of a page, in order."""
    found = BLOCK.findall(PAGES[page].read_text())
    return [(language, text) for language, text in found if language in languages]


def run(language: str, text: str, folder: Path, **environment: str) -> str:
    """Run a program or commands as a reader would, with `penstock` and `curl` on the path."""
    commands = f'set -e\ncurl() {{ command curl --fail-with-body "$@"; }}\n{text}'
    command = [sys.executable, "-c", text] if language == "python" else ["bash", "-c", commands]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory with the box office, as the pages assume it."""
    folder = tmp_path_factory.mktemp("howto")
    shutil.copytree(TOP / "examples" / "boxoffice", folder / "boxoffice")
    return folder


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[RunningConsole]:
    """Run the box office with a gateway and a view."""
    data = folder / ".penstock" / "boxoffice"
    data.mkdir(parents=True)
    with RunningConsole(str(folder / "boxoffice"), data, dev=False) as running:
        running.call("Customer/first/create")
        yield running


@pytest.mark.parametrize("page", sorted(PAGES.keys() - SEPARATE))
def test_page_runs_from_top_to_bottom(page: str, folder: Path, running: RunningConsole) -> None:
    """The programs of a page are one program; each of its commands succeeds after it."""
    address = running.url.removeprefix("http://")

    def here(text: str) -> str:
        return text.replace("127.0.0.1:8000", address).replace("localhost:8000", address)

    programs = [text for _, text in blocks(page, "python")]
    if programs:
        run("python", here("\n".join(programs)), folder)
    printed = [run("console", here(text), folder) for _, text in blocks(page, "console")]
    assert PRINTED.get(page, "") in "".join(printed)


def test_proxy_serves_the_application(folder: Path, tmp_path: Path) -> None:
    """With the page's configuration nginx passes requests on, and keys decide about access."""
    if shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        (pytest.fail if "CI" in os.environ else pytest.skip)("no nginx: apt install nginx-light")
    [(_, add_key), (_, requests)] = blocks("proxy", "console")
    data = tmp_path / "data"
    secret = run("console", add_key, folder, PENSTOCK_DATA=str(data)).strip()
    certificate = own_certificate(tmp_path)
    port = free_port("127.0.0.1")
    # In this process the name `boxoffice` may be taken by the example itself.
    served = shutil.copytree(TOP / "examples" / "boxoffice", tmp_path / "proxied_boxoffice")
    with RunningGateway(str(served), data) as gateway:
        site, hidden = (text for _, text in blocks("proxy", "nginx"))
        site = site.rstrip().removesuffix("}") + hidden + "}\n"
        for written, here in {
            "127.0.0.1:8000": gateway.url.removeprefix("http://"),
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/ssl/tickets.pem": str(certificate.certificate),
            "/etc/ssl/tickets.key": str(certificate.key),
        }.items():
            assert written in site
            site = site.replace(written, here)
        with nginx(tmp_path, site):
            url = f"https://127.0.0.1:{port}"
            asked = requests.replace("https://tickets.example", url)
            asked = asked.replace("curl -sS", 'curl -sS -H "Host: tickets.example"')
            known = {"KEY": secret, "CURL_CA_BUNDLE": str(certificate.certificate)}
            wait_for(lambda: answers(f"{url}/readyz"), "the proxy")
            assert '"zoe"' in run("console", asked, folder, **known)
            with Client(url, key=secret, verify=certificate.certificate).pipeline() as pipeline:
                assert pipeline.Customer("zoe").pay_in("5").result() == "5"
            without = httpx.post(
                f"{url}/call/Customer/eve/create", verify=False, json={}, timeout=60
            )
            assert without.status_code == 401
            assert httpx.get(f"{url}/metrics", verify=False, timeout=60).status_code == 404


def answers(url: str) -> bool:
    try:
        return httpx.get(url, verify=False, timeout=60).is_success
    except httpx.ConnectError:
        return False


class nginx:  # noqa: N801 -- a context manager, used like a function
    """Run nginx with the servers of a site, until the block ends."""

    def __init__(self, folder: Path, site: str) -> None:
        places = "".join(
            f"{name}_temp_path {folder}/nginx-{name};\n"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        self._file = folder / "nginx.conf"
        self._file.write_text(
            f"daemon off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{places}{site}}}\n"
        )

    def __enter__(self) -> None:
        path = f"{os.environ['PATH']}:/usr/sbin"
        program = shutil.which("nginx", path=path)
        assert program is not None
        self._process = subprocess.Popen([program, "-c", self._file], stderr=subprocess.DEVNULL)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    """Give the dashboard for Grafana."""
    return dict(json.loads((HOWTO / "grafana-dashboard.json").read_text()))


def test_dashboard_asks_for_metrics_that_exist(dashboard: dict[str, Any]) -> None:
    """The page on metrics lists each metric and each label value of the dashboard."""
    page = (TOP / "docs" / "operations" / "metrics.md").read_text()
    listed = set(re.findall(r"^\| `(penstock_\w+)` \|", page, re.MULTILINE))
    asked = set(METRIC.findall(text := json.dumps(dashboard)))
    assert len(asked) > 12
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} <= listed
    values = re.findall(r'\w+=~?\\"([^"\\$]+)\\"', text)
    assert len(values) > 3
    named_in_words = {"driver", "4xx", "5xx"}
    for value in "|".join(values).split("|"):
        assert f"`{value}`" in page or value in named_in_words


def test_dashboard_is_laid_out(dashboard: dict[str, Any]) -> None:
    """Panels have different ids, fill their rows and do not overlap; the page names each row."""
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    for one, other in combinations(places, 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == re.findall(r"^\| (\w+) \| .*\?", PAGES["monitoring"].read_text(), re.MULTILINE)
