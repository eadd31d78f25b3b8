"""The functions of the console's scripts, called where they run: in the browser."""

import re
from typing import Any

import pytest


def test_whole_numbers_of_any_size_survive(ask: Any) -> None:
    """Numbers that JSON holds exactly are not rounded, neither in reading nor in writing."""
    text = '{"big":90071992547409931234,"small":-7,"fraction":0.5,"text":"12345678901234567890"}'
    assert ask("json.js", "module.encode(module.decode(given))", text) == text


def test_floats_and_odd_texts_keep_their_form(ask: Any) -> None:
    """A float is no whole number, a negative zero stays one, and no text is taken for a number."""
    text = r'{"one":1.0,"zero":-0.0,"great":1e+20,"text":"\u00000\u0000","list":[2.50,7]}'
    kept = text.replace("2.50", "2.5")
    assert ask("json.js", "module.encode(module.decodeExactly(given))", text) == kept
    shown = 'Object.values(module.decodeExactly(given)).map((one) => one instanceof module.Float ? `${one}` : "")'
    assert ask("json.js", shown, text) == ["1.0", "-0.0", "1e+20", "", ""]


def test_texts_are_shown_as_they_are(ask: Any) -> None:
    """Unseen characters are escaped, spaces are kept, and a text from right to left is a world of its own."""
    shown = "[given].map(module.lineNode).map((one) => one.outerHTML ?? one)[0]"
    null = '<span class="null">%s</span>'
    for text, expected in (
        ("Zoë 👩‍👧 <b>", "Zoë 👩‍👧 <b>"),
        ("", null % "empty"),
        ("a\0b", "<bdi>a" + null % r"\u0000" + "b</bdi>"),
        ("cod\u202eexe", "<bdi>cod" + null % r"\u202e" + "exe</bdi>"),
        ("שלום", "<bdi>שלום</bdi>"),
        ('["שלום",1]', '<bdi dir="ltr">["שלום",1]</bdi>'),
        (" two  spaces", '<span class="as-is"> two  spaces</span>'),
        ("line\nline", '<bdi class="as-is">line\nline</bdi>'),
    ):
        assert ask("text.js", shown, text) == expected
    element = "[given].map(module.elementNode).map((one) => one.textContent ?? one)[0]"
    for text, expected in (("", '""'), ("a, b", '"a, b"'), ("null", '"null"'), ("a:b", "a:b")):
        assert ask("text.js", element, text) == expected
    whole = "module.wholeNode(given).querySelector('.long').textContent.length"
    assert ask("text.js", whole, "😀" * 5_000) == 10_000


def test_real_paths_find_their_operation(ask: Any) -> None:
    """Segments fit the places of a template, a literal segment is the better fit, and what fits nothing is said."""
    choices = [
        {"path": path}
        for path in ("/call/Item/{key}/add", "/call/Item/{key}/{method}", "/streams/lines")
    ]
    code = (
        "(([choices, path]) => { const fit = module.bestFit(choices, path);"
        " return fit && [fit.choice.path, [...fit.values]]; })(given)"
    )
    for path, expected in (
        ("/call/Item/a%2Fb%20%25/add", ["/call/Item/{key}/add", [["key", "a/b %"]]]),
        (
            "/call/Item/100%/take",
            ["/call/Item/{key}/{method}", [["key", "100%"], ["method", "take"]]],
        ),
        ("/call/Item/{key}/add", ["/call/Item/{key}/add", []]),
        ("/streams/lines", ["/streams/lines", []]),
        ("/call/Nobody/a/add", None),
    ):
        assert ask("paths.js", code, [choices, path]) == expected


def test_lag_of_streams_is_drawn_by_name(ask: Any) -> None:
    """The six names that were farthest behind are drawn; a name is 0 where it is left out, null without a sample."""
    lags = [None, {"workflow desk": 3}, {"followers of letters": 5}]
    points = [
        {"time": 5_000 * at, "workflows": lag, "followers": {}, "generated": lag}
        for at, lag in enumerate(lags)
    ]
    drawn = (
        "(() => { const load = new module.LoadHistory(); load.points = given;"
        " return [load.streamLags(-1), load.streamLags(99_000), load.generated(0)] })()"
    )
    all_of_them, none, generated = ask("load.js", drawn, points)
    assert all_of_them == {
        "points": [0, 5_000, 10_000],
        "series": [
            {"name": "followers of letters", "values": [None, 0, 5]},
            {"name": "workflow desk", "values": [None, 3, 0]},
        ],
    }
    assert none == {"points": [], "series": []}
    assert [one["values"] for one in generated["series"]] == [[0, 1], [0.6, 0]]


def test_stored_ids_are_named_in_full_with_a_key(ask: Any) -> None:
    """With a key, an id without a principal would be taken for one of the key's own."""
    named = 'module.key.set(given), ["web~1", "tea"].map(module.named)'
    assert ask("api.js", named, "") == ["web~1", "tea"]
    assert ask("api.js", named, "psk_key") == ["web~1", "~tea"]
    ask("api.js", "module.key.set(given)", "")


def test_cascade_is_a_tree(ask: Any) -> None:
    """A step stands below the step that caused it, with its atoms; failures and differences are named."""
    none = {f"{name}_left_out": 0 for name in ("questions", "answers", "later")}
    atom = {"stream": "words", "atom": 7, "count": 9, "events": ['"a"']}
    step = {"consumer": "count", "takes": "events", "source": "words", "count": 9, "held": False}
    step |= {"failure": None, "atoms": [], "questions": [], "answers": [], "later": [], **none}
    failure = {"code": "aborted", "kind": "ValueError", "message": "no"}
    left_out = {f"{name}_left_out": 0 for name in ("sent", "atoms", "later", "differences")}
    document = {
        "sent": [{"request_id": "r~~1", "call": "Item/a.add(1)", "reply": {"value": 2}}],
        "atoms": [atom],
        "steps": [
            {
                **step,
                "step_id": "r~~s1",
                "number": 1,
                "parent": 0,
                "atoms": [{**atom, "atom": None}],
            },
            {**step, "step_id": "r~~s2", "number": 2, "parent": 1, "failure": failure},
        ],
        "later": [{"request_id": "r~~c", "call": "rest", "delay_us": 0, "epoch": 4, "error": None}],
        "differences": [{"place": "atom 7", "part": "event 0", "recorded": "a", "replayed": None}],
        **left_out,
        "steps_left_out": 3,
    }
    texts = '[...module.cascade(given).querySelectorAll(".told, .hint, .problem li")]'
    told = ask("cascade.js", f"{texts}.map((one) => one.textContent.trim())", document)
    assert told == [
        "sent Item/a.add(1) → 2 r~~1",
        'atom words 7, 9 events "a"  …',
        "step count took 9 events of stream words r~~s1",
        'atom words, 9 events "a"  …',
        "step count took 9 events of stream words r~~s2 failed: ValueError: no",
        "and 3 further workflow steps",
        "later rest took effect in epoch 4 r~~c",
        'atom 7, event 0: recorded "a", in this run nothing',
    ]
    below = "module.cascade(given).querySelectorAll('details li .name').length"
    assert ask("cascade.js", below, document) == 1


def test_newer_points_replace_those_of_the_same_step(ask: Any) -> None:
    """The unfinished step is replaced by the finished one, and points of an older hour are dropped."""
    old = [{"time": 1_000 * time, "lag": 1} for time in (5, 3_000, 3_605)]
    newer = [{"time": 1_000 * time, "lag": 2} for time in (3_605, 3_610)]
    told = "module.merged(given[0], given[1]).map((one) => [one.time / 1000, one.lag])"
    assert ask("load.js", told, [old, newer]) == [[3_000, 1], [3_605, 2], [3_610, 2]]
    assert ask("load.js", "module.merged(given, []).length", old[1:]) == 2


def test_throughput_of_an_hour_needs_no_reports_of_epochs(ask: Any) -> None:
    """Steps share a slot, a pause of the gateways is spread over its time, and the hour is complete."""
    steps = [*range(5, 3_601, 5)]
    points = [{"time": 1_000 * time, "processed": 50} for time in steps]
    told = (
        "(() => { const load = new module.LoadHistory(); load.points = given[0];"
        " return [load.throughput(given[1], given[2]), load.processed(0)] })()"
    )
    chart, processed = ask("load.js", told, [points, 3_600_000, 3_600])
    assert len(chart["points"]) == 90
    assert set(chart["series"][0]["values"]) == {10}
    assert processed == 50 * len(steps)
    paused = [{"time": 1_000 * time, "processed": 600} for time in (5, 10, 70)]
    unfinished = [{"time": 75_000, "processed": 3}, {"time": 80_000, "processed": None}]
    chart, _ = ask("load.js", told, [paused + unfinished, 72_000, 300])
    assert chart == {
        "points": [10_000, 70_000],
        "series": [{"name": "requests/s", "values": [120, 10]}],
    }


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("int", "int"),
        ("Item | None", "Item"),
        ("list[tuple[Item, int]]", "list(tuple(Item,int))"),
        ("dict[str, list[User]]", "dict(str,list(User))"),
        ("int | str", "|(int,str)"),
    ],
)
def test_types_are_read_as_python_writes_them(ask: Any, text: str, shape: str) -> None:
    """Nested types, optional ones and unions are told apart."""
    told = (
        "(function f(t) { return t.name + (t.parts.length ? `(${t.parts.map(f)})` : '') })"
        "(module.parseType(given))"
    )
    assert ask("value.js", told, text) == shape


def test_graph_runs_from_left_to_right_and_nothing_overlaps(ask: Any) -> None:
    """Callers lie left of their callees, but for one edge of each circle; nodes keep apart."""
    names = "abcdefgh"
    edges = ["a>b", "a>c", "b>d", "c>d", "d>e", "a>e", "e>f", "f>g", "g>d", "a>h"]
    given = {
        "nodes": [{"id": name, "width": 60, "height": 40} for name in names],
        "edges": [{"from": edge[0], "to": edge[2]} for edge in edges],
    }
    placed = ask(
        "layout.js",
        "Object.fromEntries(module.layered(given.nodes, given.edges).places)",
        given,
    )
    backward = [edge for edge in edges if placed[edge[0]]["x"] >= placed[edge[2]]["x"]]
    assert backward == ["g>d"]  # which closes the circle d, e, f, g
    boxes = [placed[name] for name in names]
    for index, one in enumerate(boxes):
        for other in boxes[index + 1 :]:
            beside = abs(one["x"] - other["x"]) >= 60
            assert beside or abs(one["y"] - other["y"]) >= 40


def test_phases_are_in_the_order_of_the_epoch(ask: Any) -> None:
    """All later rounds are one phase, and the time between two epochs belongs to no phase."""
    phases = {"rest": 9, "read": 1, "round1": 1, "validate": 1, "round2": 1, "round10": 1}
    epoch = {"phases_ms": {**phases, "write": 1, "commit": 1}}
    names = ask("series.js", "module.phasesOf([given]).map(([name]) => name)", epoch)
    assert names == ["read", "round1", "later rounds", "write", "commit"]
    assert ask("series.js", "module.phasesOf([given])[2][1](given)", epoch) == 3
    assert ask("series.js", "module.busyMs(given)", epoch) == 7


@pytest.mark.parametrize(
    ("greatest", "marks"), [(7, [0, 2, 4, 6, 8]), (0.3, [0, 0.1, 0.2, 0.3]), (1, [0, 0.5, 1])]
)
def test_axis_has_round_numbers(ask: Any, greatest: float, marks: list[float]) -> None:
    """The marks of an axis begin at zero, are round, and reach the greatest value."""
    found = ask("chart.js", "module.ticks(0, given)", greatest)
    assert found[0] == 0
    assert found[-1] >= greatest
    assert len(found) >= 2
    assert set(marks) & set(found)


def test_values_never_become_markup(ask: Any) -> None:
    """A value that looks like HTML is shown as the text that it is."""
    told = "module.inline(given, {name: 'str', parts: []}, new Set()).toString()"
    assert ask("value.js", told, "<b>bold</b>") == "<b>bold</b>"
    link = "module.inline(given, {name: 'Item', parts: []}, new Set(['Item'])).outerHTML"
    assert "<img" not in ask("value.js", link, "<img src=x onerror=alert(1)>")


SCHEMA = [
    {
        "schema": "main",
        "name": "Order",
        "columns": [{"name": "total", "type": "bigint"}, {"name": "made at", "type": "date"}],
    },
    {"schema": "penstock", "name": "requests", "columns": [{"name": "epoch", "type": "bigint"}]},
]


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ('SELECT * FROM "Order" AS o, penstock.requests r WHERE', ["Order:o", "requests:r"]),
        ("SELECT a FROM one JOIN two USING (a) -- FROM three", ["one:", "two:"]),
        ("SELECT 'FROM x' FROM (SELECT 1 FROM inner_one) WHERE", ["inner_one:"]),
        ("SELECT 1 FROM Item AS OF EPOCH 3", ["Item:"]),
        ("SELECT 1 FROM", []),
    ],
)
def test_tables_of_an_unfinished_query_are_found(ask: Any, query: str, tables: list[str]) -> None:
    """Tables with their short names are read from text that is no whole statement."""
    told = "module.tablesIn(given).map((one) => `${one.name}:${one.alias}`)"
    assert ask("sql_scan.js", told, query) == tables


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ('SELECT | FROM "Order"', None),
        ('SELECT tot| FROM "Order"', "total"),
        ('SELECT ma| FROM "Order" o', '"made at"'),
        ('SELECT o.| FROM "Order" o', "total"),
        ("SELECT * FROM Ord|", '"Order"'),
        ("SELECT * FROM penstock.|", "requests"),
        ("SELECT * FROM req|", "penstock.requests"),
        ('SELECT \'tot| FROM "Order"', None),
        ("-- tot|", None),
        ("sel|", "SELECT"),
        ("SELECT 12|", None),
        ('SELECT total AS to| FROM "Order"', None),
    ],
)
def test_suggestions_fit_the_place_of_the_caret(ask: Any, query: str, first: str | None) -> None:
    """Columns of the named tables come first; strings, comments and numbers have no suggestions."""
    given = [query.replace("|", ""), query.index("|"), SCHEMA]
    told = "module.suggestionsAt(...given)?.items[0].text ?? null"
    assert ask("sql_scan.js", told, given) == first


def test_place_of_an_error_is_found_in_the_text(ask: Any) -> None:
    """Line and column count characters; a place behind the end marks the last character."""
    text = "SELECT '\U0001f600', nope\nFROM"
    told = "given[1].map((place) => { const { from, to } = module.rangeOf(given[0], place); return given[0].slice(from, to) })"
    places = [{"line": 1, "column": 13}, {"line": 2, "column": 1}, {"line": 2, "column": 5}]
    assert ask("sql_editor.js", told, [text, places]) == ["nope", "FROM", "M"]


def test_values_of_an_answer_are_shown_and_ordered_by_their_type(ask: Any) -> None:
    """Decimals are ordered by size and exactly, grouped in thousands; times have a named zone."""
    decimals = ["-2.5", "9.5", "9.25", "10", "12345678901234567890.10", "-10"]
    told = "given.toSorted((a, b) => module.ordered(a, b, 'DECIMAL(38,2)'))"
    ordered = ["-10", "-2.5", "9.25", "9.5", "10", "12345678901234567890.10"]
    assert ask("answer_text.js", told, decimals) == ordered
    shown = "given.map(([value, type]) => module.personal(value, type))"
    pairs = [
        ["12345678.50", "DECIMAL(18,2)"],
        ["-1234", "HUGEINT"],
        ["2026-01-31T12:00:00.500000Z", "TIMESTAMP WITH TIME ZONE"],
        ["2026-01-31T12:00:00", "TIMESTAMP"],
        ["1234", "VARCHAR"],
    ]
    texts = ["12,345,678.50", "-1,234", "2026-01-31 12:00:00.5 UTC", "2026-01-31 12:00:00", "1234"]
    assert ask("answer_text.js", shown, pairs) == texts


def test_copied_rows_are_csv_and_json(ask: Any) -> None:
    """Quotes, line breaks, nested values, null and empty text survive in the copied rows."""
    given = [[{"name": "a,b"}, {"name": "c"}], [['say "x"', None], ["", [1, 2]]]]
    csv = '"a,b",c\n"say ""x""",\n"","[1,2]"\n'
    assert ask("answer_text.js", "module.csvOf(...given)", given) == csv
    told = "JSON.parse(module.jsonOf(...given))"
    assert ask("answer_text.js", told, given) == [
        {"a,b": 'say "x"', "c": None},
        {"a,b": "", "c": [1, 2]},
    ]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string", "title": "Key of Item"}, "reference"),
        ({"anyOf": [{"type": "string", "format": "decimal"}, {"type": "number"}]}, "decimal"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "union"),
        ({"enum": [1, "two", None]}, "choice"),
        ({"type": "string", "format": "date-time"}, "date-time"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "pattern": r"^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?$"}, "time"),
        ({"type": "array", "items": {"type": "integer"}}, "list"),
        ({"type": "array", "prefixItems": [{}], "items": False}, "row"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map"),
        ({"type": "object", "properties": {"a": {}}}, "record"),
        ({}, "json"),
    ],
)
def test_schema_has_the_input_that_fits_it(ask: Any, schema: Any, kind: str) -> None:
    """The form of a value follows from its schema."""
    assert ask("schema.js", "module.kindOf(given)", schema) == kind


def test_error_of_the_gateway_names_its_argument(ask: Any) -> None:
    """The argument and the path inside it are read from the message; other messages have none."""
    messages = [
        "Trip.plan: nights: Invalid date - at `$[0].day`",
        "Trip.plan: prices: Invalid decimal string - at `$[...]`",
        "Item.add: amount: Expected `int`, got `str`",
        "the body is no JSON",
    ]
    paths = [["nights", 0, "day"], ["prices", "..."], ["amount"], None]
    assert ask("reading.js", "given.map(module.pathIn)", messages) == paths


@pytest.mark.parametrize("value", ["2031-05-09T19:30:01.123456Z", "19:30:01.123456", "2031-05-09"])
def test_a_default_that_is_not_changed_is_sent_as_it_is(ask: Any, value: str) -> None:
    """A picker shows whole seconds; the microseconds of a default are sent nevertheless."""
    format_name = "date-time" if "Z" in value else "time" if ":" in value else "date"
    schema = {"type": "string", "format": format_name, "default": value}
    told = """(() => {
      const input = new module.ScalarInput(
        { name: "at", schema: given, whole: given, document: {}, required: true });
      const shown = input.element.querySelector("input").value;
      return [shown !== "", input.read({ refuse: (_, why) => why })];
    })()"""
    assert ask("scalar_input.js", told, schema) == [True, {"given": True, "value": value}]


def test_chart_leaves_out_what_has_no_place(ask: Any) -> None:
    """NaN and infinities are gaps among the values; on the axis below they are texts as others are."""
    columns = [{"name": "place", "type": "DOUBLE"}, {"name": "amount", "type": "DOUBLE"}]
    code = "module.chartOf(given[0], given[1]).element.outerHTML"
    for rows in ([[1.0, 2.0], [2.0, "NaN"], [3.0, "-Infinity"]], [["NaN", 1.0], [2.0, 3.0]]):
        drawn = ask("answer.js", code, [columns, rows])
        assert "<svg" in drawn
        assert "NaN" not in re.sub(r">[^<]*<", "><", drawn)


QUIET = {
    "processes": [{"role": "driver", "pid": 7, "state": "running"}],
    "views": [],
    "effects": None,
    "captures": [],
    "incidents": [],
    "clock_text": "",
    "now_us": 10_000_000_000,
}
STEADY = {
    "recent_s": 300,
    "outcomes": {"requests": 900, "failed": 0, "undone": 3, "failed_recently": 0},
    "waiting": 0,
    "paused": [],
    "latency": {"requests": 90, "p50_ms": 5, "p95_ms": 12},
    "latency_before": {"requests": 900, "p50_ms": 5, "p95_ms": 10},
}


def test_overview_says_what_is_wrong_and_nothing_else(ask: Any) -> None:
    """Each fault is one finding with its level, the worst is first, and a healthy application has none."""
    code = (
        "(([ready, health, status]) => { const found = module.findingsOf({ ready, health, status });"
        " return [module.levelOf(found), found.map((each) => [each.level, each.text, each.href])]; })(given)"
    )
    well: dict[str, list[str]] = {"reasons": [], "missing": []}
    assert ask("health.js", code, [well, STEADY, QUIET]) == ["good", []]
    assert ask("health.js", code, [None, None, None]) == ["good", []]
    view = {
        "name": "books",
        "state": "waiting",
        "reason": "no server",
        "remedy": "",
        "incomplete": False,
    }
    level, found = ask(
        "health.js",
        code,
        [
            {"reasons": ["the disk is full"], "missing": ["no view runs"]},
            STEADY
            | {
                "waiting": 1,
                "paused": ["*"],
                "latency": {"requests": 90, "p50_ms": 5, "p95_ms": 80},
            },
            QUIET
            | {
                "processes": [
                    {"role": "driver", "pid": 7, "state": "stopped"},
                    {"role": "view", "pid": 8, "state": "running"},
                ],
                "view_epoch": None,
                "views": [view],
                "effects": {"state": "following", "reason": "", "functions": [{"dead": 2}]},
            },
        ],
    )
    assert level == "bad"
    assert found == [
        ["bad", "the disk is full", ""],
        ["warn", "no view runs", ""],
        [
            "warn",
            "The SQL view does not answer: it is busy, or starts. SQL and the lists of requests need it.",
            "",
        ],
        ["warn", "The driver (process 7): stopped.", ""],
        ["warn", "View books is waiting: no server.", "#/views"],
        ["warn", "2 effects failed for good.", "#/effects"],
        ["warn", "Paused: everything. Gateways refuse these requests.", "#/flow"],
        [
            "warn",
            "1 failed request of the background waits for an operator.",
            "#/requests?show=failed",
        ],
        [
            "warn",
            "Latency: 95 % of requests take up to 80 ms; 10 ms in the hour before.",
            "#/performance",
        ],
    ]


def test_few_requests_and_small_differences_are_not_slower(ask: Any) -> None:
    """A percentile of few requests is chance, and a millisecond more is nothing to look at."""
    code = "module.isSlower(...given)"
    for now, before, expected in (
        ((90, 80), (900, 10), True),
        ((3, 80), (900, 10), False),
        ((90, 80), (3, 10), False),
        ((90, 3), (900, 1), False),
        ((90, 80), (900, 60), False),
    ):
        given = [{"requests": requests, "p95_ms": p95} for requests, p95 in (now, before)]
        assert ask("health.js", code, given) is expected


def test_times_hide_their_fraction_until_it_is_wanted(ask: Any) -> None:
    """An element has the whole time; a time of today has no day, and one of this year has no year."""
    shown = "((one) => [one.textContent, one.title, one.querySelector('.fraction')?.textContent])"
    instant = f"{shown}(module.instantNode(given))"
    whole = "2026-01-31 12:00:00.123456 UTC"
    assert ask("times.js", instant, "2026-01-31T12:00:00.123456Z") == [whole, whole, ".123456"]
    assert ask("times.js", instant, "2026-01-31T12:00:00Z")[1:] == ["2026-01-31 12:00:00 UTC", None]
    assert (
        ask("times.js", "module.microsecondsOf(given)", "1970-01-01T00:00:01.000042Z") == 1_000_042
    )
    assert ask("times.js", "module.microsecondsOf(given)", "1970-01-01T00:00:01Z") == 1_000_000
    now = ask("times.js", f"{shown}(module.shortMoment(Date.now() * 1000 + 7))")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}007", now[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", ask("times.js", f"{shown}(module.shortMoment(0))")[0])
