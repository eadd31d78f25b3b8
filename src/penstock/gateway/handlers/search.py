"""`GET /search/{view}`: questions to the search indexes that views feed.

The gateway reads an index from its files, in threads; tantivy holds no lock of Python while it searches. The epoch of an
answer is the position of the view in the commit that was read. With `min_epoch` the answer comes when the view has
reached it.
"""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from penstock.base.http import EPOCH, JSON
from penstock.client.results import SearchAnswer
from penstock.errors import Overloaded, RequestError, TimedOut, ViewUnavailable
from penstock.gateway.http_request import HttpRequest, whole_number
from penstock.gateway.route import (
    MIN_EPOCH_HEADER,
    READ,
    SHOWN,
    SQL,
    Answer,
    Parameter,
    Route,
    json_content,
)
from penstock.gateway.work_threads import WorkThreads
from penstock.model.application import App, unknown
from penstock.process.config import Config
from penstock.process.view_files import folder_of

if TYPE_CHECKING:
    from penstock.views.search_index import SearchIndex

THREADS: Final = 2
"""Searches of one gateway at the same time; as many again may go on whose callers have gone."""

_WAITING_MAX: Final = 200
"""The most searches that wait for a thread, or for an epoch."""
_LOOK_S: Final = 0.02
_LIMIT_DEFAULT: Final = 10
_COUNT: Final = {"type": "integer", "minimum": 0}
_TRUTH: Final = {"type": "boolean"}


class Searches:
    """The open search indexes of a gateway, and its threads that read them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._indexes: dict[str, SearchIndex] = {}
        self._threads = WorkThreads(THREADS, "penstock-search")
        self._waiting = 0

    async def answer(
        self, name: str, question: dict[str, Any], min_epoch: int, timeout_s: float
    ) -> SearchAnswer:
        """Answer a question when the view has reached an epoch.

        Args:
            name: The view.
            question: The fields of a `SearchQuery`.
            min_epoch: The oldest epoch that may answer; -1: any.
            timeout_s: The longest wait.

        Raises:
            RequestError: The question is wrong.
            Overloaded, TimedOut: Too many searches wait, or there was no answer in time.
            ViewUnavailable: The view has not been filled, or its index is damaged.
        """
        if self._waiting >= _WAITING_MAX:
            raise Overloaded(f"{_WAITING_MAX} searches wait here already")
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer(name, question, min_epoch)
        except TimeoutError:
            late = f", which has not reached epoch {min_epoch}" if min_epoch >= 0 else ""
            raise TimedOut(f"view {name}{late}, has not answered within {timeout_s:g} s") from None
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the threads when their searches have ended."""
        self._threads.close()

    async def _answer(self, name: str, question: dict[str, Any], min_epoch: int) -> SearchAnswer:
        # The library is an extra, and the first search loads it.
        module = await self._threads.run(lambda: _module(name))
        index = self._indexes.get(name)
        if index is None:
            index = self._indexes[name] = module.SearchIndex(folder_of(self._config.data, name))
        asked = msgspec.convert(question, module.SearchQuery)
        while True:
            try:
                answer: SearchAnswer = await self._threads.run(lambda: index.search(asked))
            except module.TargetProblem as error:
                raise ViewUnavailable(f"view {name}: {error}") from error
            if answer.epoch >= min_epoch:
                return answer
            await self._reached(index, min_epoch)

    async def _reached(self, index: "SearchIndex", min_epoch: int) -> None:
        while (await self._threads.run(index.epoch) or 0) < min_epoch:
            await asyncio.sleep(_LOOK_S)


class SearchHandler:
    """Serves the searches of one version of an application."""

    def __init__(self, app: App, config: Config, searches: Searches) -> None:
        self._app = app
        self._config = config
        self._searches = searches

    @Route(
        "GET",
        "/search/{view}",
        "search",
        name="search.ask",
        tag="SQL",
        right=SQL,
        parameters=(
            Parameter(
                "view", "path", "The name of the view.", {"type": "string"}, is_required=True
            ),
            Parameter(
                "q",
                "query",
                'Words, or the language of tantivy: `"a phrase"`, `column:word`, `a OR b`, '
                "`-word`, `price:[10 TO 20]`; a `*` behind the last word finds beginnings.",
                {"type": "string", "maxLength": 2_000},
            ),
            Parameter("table", "query", "The table; without it, all tables.", {"type": "string"}),
            Parameter(
                "limit",
                "query",
                f"The most hits; the default is {_LIMIT_DEFAULT}.",
                {**_COUNT, "maximum": 1_000},
            ),
            Parameter("offset", "query", "The number of hits to pass over.", _COUNT),
            Parameter(
                "facet",
                "query",
                "The columns whose values are counted, with commas between; `*`: all of `search(facets=…)`.",
                {"type": "string"},
            ),
            Parameter(
                "filter",
                "query",
                'Conditions by column, as JSON: `{"brand": ["A", "B"], "price": {">=": 10}}`.',
                {"type": "object"},
                is_json=True,
            ),
            Parameter("highlight", "query", "Whether hits show the words found.", _TRUTH),
            Parameter("lenient", "query", "Whether mistakes in `q` are passed over.", _TRUTH),
            MIN_EPOCH_HEADER,
        ),
        fields=READ,
        answers=(Answer("The hits.", json_content(SearchAnswer), SHOWN),),
        errors=(429, 504),
    )
    async def search(self, request: HttpRequest) -> Response:
        """Search a view.

        Finds rows of a view whose target is a search index. The answer is of exactly one epoch, and names it.
        """
        name = request.path["view"]
        searched = sorted(
            each.name for each in self._app.views.values() if each.target.kind == "search"
        )
        if name not in searched:
            raise RequestError(unknown("view with a search index", name, searched))
        most_s = self._config.view.time_ms / 1_000
        answer = await self._searches.answer(
            name,
            _question_of(request),
            request.min_epoch(),
            request.wait_s("timeout", most_s, most_s),
        )
        return Response(
            msgspec.json.encode(answer), media_type=JSON, headers={EPOCH: str(answer.epoch)}
        )


def _question_of(request: HttpRequest) -> dict[str, Any]:
    """Return the fields of a `SearchQuery`."""
    filters: object = {}
    if (text := request.field("filter")) is not None:
        try:
            filters = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise RequestError(f"filter={text} is not JSON: {error}") from error
        if not isinstance(filters, dict):
            raise RequestError(f"filter={text} must be a JSON object from columns to conditions")
    facets = request.field("facet", "")
    return {
        "query": request.field("q", ""),
        "table": request.field("table"),
        "limit": _count_of(request, "limit", _LIMIT_DEFAULT),
        "offset": _count_of(request, "offset", 0),
        "filters": filters,
        "facets": tuple(facets.split(",")) if facets else (),
        "highlight": request.flag("highlight"),
        "lenient": request.flag("lenient"),
    }


def _count_of(request: HttpRequest, name: str, default: int) -> int:
    text = request.field(name)
    return default if text is None else whole_number(name, text, "is not such a number", 0)


def _module(name: str) -> Any:
    try:
        return import_module("penstock.views.search_index")
    except ImportError as error:
        raise ViewUnavailable(
            f"view {name} is a search index: pip install 'penstock[search]'"
        ) from error
