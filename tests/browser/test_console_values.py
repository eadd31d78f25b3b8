"""Values in the console: numbers, texts, nested values, and references as links."""

from typing import Any


def test_values_are_shown_by_their_types(ask: Any) -> None:
    """NaN is no quoted text, keys of a dictionary may be numbers, and a long key may break."""
    shown = "(([value, type]) => module.inline(value, module.parseType(type), new Set(['Item'])).textContent)(given)"
    for value, kind, expected in (
        ("NaN", "float", "NaN"),
        (None, "float | None", "null"),
        (["-Infinity", 0.5], "list[float]", "[-Infinity, 0.5]"),
        ([[10, "ten"], [9, "a, b"]], "dict[int, str]", '{10: ten, 9: "a, b"}'),
        ({"a": "x"}, "dict[str, Item]", "{a: x}"),
        ([[], [[]]], "list[list[list[int]]]", "[[], [[]]]"),
    ):
        assert ask("value.js", shown, [value, kind]) == expected
    link = "[given].map((key) => module.keyLink('Item', key)).map((one) => [one.className, one.hash])[0]"
    assert ask("value.js", link, "a/b%") == ["reference", "#/entities/Item/a%2Fb%25"]
    assert ask("value.js", link, "x" * 60)[0] == "reference long"


def test_references_inside_of_records_are_links(ask: Any) -> None:
    """The plan has the fields of records: a reference is a link in lists, generic records, unions and NamedTuples."""
    records = [
        {
            "name": "Line",
            "fields": [{"name": "item", "type": "Item"}, {"name": "note", "type": "str"}],
        },
        {"name": "Box[Line]", "fields": [{"name": "inside", "type": "list[Line]"}]},
    ]
    for shape in ("inline", "block", "brief"):
        code = (
            f"(([records, value, type]) => {{ module.learnRecords(records); const node = module.{shape}(value,"
            " module.parseType(type), new Set(['Item'])); const top = document.createElement('div'); top.append(node);"
            " return [...top.querySelectorAll('a')].map((one) => one.hash); })(given)"
        )
        line = {"item": "tea", "note": "Item"}
        for value, kind in (
            (line, "Line"),
            (line, "None | Line | int"),
            ([line], "list[Line]"),
            ({"a": line}, "dict[str, Line]"),
            ({"inside": [line]}, "Box[Line]"),
            (["tea", "Item"], "Line"),
        ):
            assert ask("value.js", code, [records, value, kind]) == ["#/entities/Item/tea"], (
                shape,
                kind,
            )


def test_a_named_tuple_shows_the_names_of_its_fields(ask: Any) -> None:
    """It is stored as an array, and its page shows it as other records."""
    records = [
        {
            "name": "Place",
            "fields": [{"name": "row", "type": "int"}, {"name": "seat", "type": "str"}],
        }
    ]
    code = (
        "(([records, value, type]) => { module.learnRecords(records); const node = module.block(value,"
        " module.parseType(type), new Set()); return [node.localName, node.textContent]; })(given)"
    )
    assert ask("value.js", code, [records, [3, "b"], "Place"]) == ["dl", "row3seatb"]
    name, text = ask("value.js", code, [records, [[3, "b"], [4, "c"]], "list[Place]"])
    assert (name, text.endswith("3b4c"), "row" in text) == ("div", True, True), text


def test_encrypted_arguments_have_no_parameter(ask: Any) -> None:
    """They are one text in place of all arguments, and it is no key to follow."""
    code = "module.argumentsOf(given, { method: 'rate', names: new Set() }).textContent"
    assert ask("request_cells.js", code, '["<personal>"]') == "encrypted: they belong to a person"
    assert ask("request_cells.js", code, '["<personal>", 1]') == "<personal>1"
