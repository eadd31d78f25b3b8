"""`GET /search/{view}` and `client.search`: a whole view, from the request that writes to the hit."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from penstock import App, search, view
from penstock.cli.main import execute
from penstock.client.asynchronous import AsyncClient
from penstock.client.results import FacetCount, SearchAnswer
from penstock.client.synchronous import Client
from penstock.errors import DefinitionError, RequestError, ViewUnavailable
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.process.view_files import change_orders, folder_of, read_report
from tests.gateway_thread import RunningGateway
from tests.views.appliers import appliers
from tests.views.catalogue_app import Item, app
from tests.waiting import wait_for

SPEC = "tests.views.catalogue_app:app"
NAME = "catalogue"


def applier(data: Path) -> AbstractContextManager[None]:
    return appliers(app, data, NAME)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    with RunningGateway(SPEC, tmp_path, reads=False) as running:
        yield running


def fill(client: Client) -> None:
    client.bulk(
        [
            client.prepare.Item.create("a", name="green tea", brand="Leaf", price=Decimal("1.5")),
            client.prepare.Item.create("b", name="black tea", brand="Leaf", price=Decimal("2.5")),
            client.prepare.Item.create("c", name="tea pot <b>", brand="Clay", price=Decimal(20)),
        ]
    )


def names_in(answer: SearchAnswer) -> list[str]:
    return sorted(hit.row["name"] for hit in answer.hits)


def test_a_client_finds_what_it_has_written(gateway: RunningGateway, tmp_path: Path) -> None:
    """A search waits for the writes of its client, and its answer names its epoch."""
    with Client(gateway.url, app) as client, applier(tmp_path):
        fill(client)
        answer = client.search(NAME, "tea", table="Item", facets=["brand"], highlight=True)
        assert names_in(answer) == ["black tea", "green tea", "tea pot <b>"]
        assert answer.facets == {"brand": [FacetCount("Leaf", 2), FacetCount("Clay", 1)]}
        assert answer.hits[0].highlights["name"].count("tea") == 1
        for turn in range(10):
            client.Item("a").rename(f"white{turn} tea")
            answer = client.search(NAME, f"white{turn}", filters={"price": {"<": Decimal(2)}})
            assert names_in(answer) == [f"offer of white{turn} tea", f"white{turn} tea"]
            assert answer.epoch >= client.epoch
        client.Item("a").rename("broken")
        assert client.search(NAME, "white9").total == 0
        assert client.search(NAME, "offer", table="_failed").hits[0].row["key"] == "a"


def test_the_asynchronous_client_searches(gateway: RunningGateway, tmp_path: Path) -> None:
    """Both clients ask the same question."""

    async def ask() -> SearchAnswer:
        async with AsyncClient(gateway.url, app) as client:
            await client.Item.create("a", name="green tea")
            return await client.search(NAME, "tea", limit=1, table="Item")

    with applier(tmp_path):
        assert names_in(asyncio.run(ask())) == ["green tea"]


def test_questions_over_http(gateway: RunningGateway, tmp_path: Path) -> None:
    """The fields of the query string are those that the document names; wrong ones are refused with their place."""
    with Client(gateway.url, app) as client, applier(tmp_path):
        fill(client)
        epoch = client.search(NAME, "tea").epoch
    path = f"{gateway.url}/search/{NAME}"
    fields = {"q": "tea", "table": "Item", "filter": '{"brand": ["Leaf"]}', "facet": "brand"}
    answer = httpx.get(path, params={**fields, "limit": "1", "min_epoch": str(epoch)})
    assert answer.headers["Penstock-Epoch"] == str(epoch)
    assert answer.json()["total"] == 2
    assert len(answer.json()["hits"]) == 1
    for wrong, message in (
        ({"q": "nam:tea"}, "did you mean name"),
        ({"q": "("}, "character 2"),
        ({"limit": "1001"}, "limit=1001"),
        ({"limit": "x"}, "limit=x"),
        ({"filter": "{"}, "is not JSON"),
        ({"filter": "[1]"}, "JSON object"),
        ({"highlight": "1"}, "true or false"),
        ({"facet": "name"}, "not counted"),
        ({"query": "tea"}, "no field of the query string"),
        ({"min_epoch": "x"}, "min_epoch=x"),
    ):
        refused = httpx.get(path, params=wrong)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "request")
        assert message in refused.json()["error"]["message"]
    late = httpx.get(path, params={"min_epoch": str(epoch + 99), "timeout": "0.1"})
    assert late.status_code == 504
    assert f"has not reached epoch {epoch + 99}" in late.json()["error"]["message"]


def test_views_without_an_index_are_named(gateway: RunningGateway) -> None:
    """A view that is not there, has another target, or has not been filled, is refused with its name."""
    with Client(gateway.url, app, retries=0) as client:
        with pytest.raises(RequestError, match="did you mean catalogue"):
            client.search("catalog")
        with pytest.raises(RequestError, match="no view with a search index 'copies'"):
            client.search("copies")
        with pytest.raises(
            ViewUnavailable, match="view catalogue: the search index has not been filled yet"
        ):
            client.search(NAME)


def test_a_search_needs_the_scope_sql(tmp_path: Path) -> None:
    """A search shows rows of all classes of a view, as SQL does."""
    tmp_path.mkdir(exist_ok=True)
    keys = KeyStore(tmp_path)
    now = datetime.now(UTC)
    reader, asker = (keys.add(scope, granted([scope]), None, now)[1] for scope in ("read", "sql"))
    with RunningGateway(SPEC, tmp_path, reads=False) as running:
        path = f"{running.url}/search/{NAME}"
        codes = [
            httpx.get(path, headers={"Authorization": f"Bearer {key}"} if key else {}).status_code
            for key in ("", reader, asker)
        ]
    assert codes == [401, 403, 503]


def test_the_loop_is_not_blocked(gateway: RunningGateway, tmp_path: Path) -> None:
    """While many searches wait for an epoch that does not come, other requests are answered."""
    with Client(gateway.url, app) as client, applier(tmp_path):
        fill(client)
        epoch = client.search(NAME, "tea").epoch

    async def ask() -> None:
        async with httpx.AsyncClient(timeout=90) as http:
            late = {"min_epoch": str(epoch + 1), "timeout": "25"}
            waiting = [
                asyncio.create_task(http.get(f"{gateway.url}/search/{NAME}", params=late))
                for _ in range(50)
            ]
            await asyncio.sleep(0.1)
            answer = await http.get(f"{gateway.url}/search/{NAME}", params={"q": "tea"})
            assert answer.status_code == 200
            assert not any(each.done() for each in waiting)
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)
            soon = late | {"timeout": "0.05"}
            answer = await http.get(f"{gateway.url}/search/{NAME}", params=soon)
            assert answer.status_code == 504

    asyncio.run(ask())


def test_a_damaged_index_is_filled_by_its_order(gateway: RunningGateway, tmp_path: Path) -> None:
    """A damaged index is reported with its remedy, and filled again when an operator orders it."""
    with Client(gateway.url, app) as client, applier(tmp_path):
        fill(client)
        client.search(NAME, "tea")
    with Client(gateway.url, app, retries=0) as client:
        index = folder_of(tmp_path, NAME) / "index"
        (index / (index / "current").read_text() / "meta.json").write_text("{}")
        with pytest.raises(ViewUnavailable, match="penstock view rebuild catalogue"):
            client.search(NAME, "tea")
        with applier(tmp_path):
            remedy = "penstock view rebuild catalogue"
            wait_for(lambda: getattr(read_report(tmp_path, NAME), "remedy", "") == remedy, remedy)
            change_orders(tmp_path, NAME, lambda orders: replace(orders, rebuild=1))
            wait_for(lambda: getattr(read_report(tmp_path, NAME), "rebuilt", 0) == 1, "a fill")
            assert client.search(NAME, "tea", table="Item").total == 3


def test_the_command_finds_rows(
    gateway: RunningGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`penstock view search` gives the same rows from the data directory and through a gateway."""
    with Client(gateway.url, app) as client, applier(tmp_path):
        fill(client)
        client.search(NAME, "tea")
    answers = []
    for place in (["--data", str(tmp_path)], ["--url", gateway.url]):
        words = ["view", "search", NAME, "tea -black", "--table", "Item", "--facet", "brand"]
        assert execute([*words, *place, "--filter", '{"price": {"<": 10}}', "--json"]) == 0
        answers.append(msgspec.json.decode(capsys.readouterr().out, type=SearchAnswer))
        assert execute([*words, *place]) == 0
        shown = capsys.readouterr().out
        assert "name: green tea" in shown
        assert "brand: " in shown
        assert "2 rows at epoch" in shown
    assert answers[0] == answers[1]
    assert names_in(answers[0]) == ["green tea"]
    assert execute(["view", "search", NAME, "nam:x", "--data", str(tmp_path)]) != 0
    assert "did you mean name" in capsys.readouterr().err
    assert execute(["view", "search", "other", "x", "--data", str(tmp_path)]) != 0
    assert "not been filled yet" in capsys.readouterr().err


def test_columns_of_an_index_are_checked() -> None:
    """A column in `text` or `facets` that no table has is a mistake that the application names when it is built."""
    wrong = view("wrong", search(text=["nmae"], facets=["brand"]), Item)
    with pytest.raises(DefinitionError, match="search\\(\\) names the column nmae"):
        App("shop", Item, wrong)
