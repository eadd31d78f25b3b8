"""The pages of the documentation site: those outside of `docs`, their links, and the pictures of all pages.

mkdocs calls the functions of this module while it builds the site (`hooks` in `mkdocs.yml`). README,
CONTRIBUTING and CHANGELOG become pages, and links between them and the pages of `docs` become links of
the site. A block of Mermaid becomes a picture (SVG) here, so no page needs a script
for it. A block that Mermaid refuses, or a page that loads something from another host, ends the build.

The site has the stylesheet of the console's colours and type, and its icon. `llms.txt` lists all pages for programs that read
the documentation: each page is there as Markdown, too.
"""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

TOP: Final = Path(__file__).parent.parent
PAGES: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
INTO_DOCS: Final = re.compile(r"\]\(docs/")
OUT_OF_DOCS: Final = re.compile(r"\]\((?:\.\./)?(README|CONTRIBUTING|CHANGELOG)\.md")

MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOADS_FROM_ELSEWHERE: Final = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\ssrc=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|<link\b[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect)\b[^>]*\shref=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|<link\b[^>]*\shref=[\"']?(?:https?:)?//[^\s\"'>]+[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect)\b"
)
STATIC: Final = TOP / "src" / "penstock" / "console" / "static"
SHARED: Final = ("tokens.css", "icon.svg")
"""Files of the console that the site has, too."""

_LIGHT: Final = dict(
    re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6})", (STATIC / "tokens.css").read_text())
)
"""The console's light colours."""

COLOURS: Final = {
    "primaryColor": _LIGHT["accent-soft"],
    "primaryBorderColor": _LIGHT["accent"],
    "primaryTextColor": _LIGHT["ink"],
    "lineColor": _LIGHT["muted"],
    "tertiaryColor": _LIGHT["paper"],
    "noteBkgColor": _LIGHT["sunken"],
    "noteBorderColor": _LIGHT["warn"],
    "edgeLabelBackground": _LIGHT["surface"],
    "fontFamily": "sans-serif",
}
OPTIONAL: Final = "Optional"
"""The section of `llms.txt` that a short reading leaves out."""


def with_links_of_the_site(text: str) -> str:
    """Return a page with links that are right on the site."""
    text = INTO_DOCS.sub("](", text)
    return OUT_OF_DOCS.sub(lambda match: f"]({PAGES[f'{match[1]}.md']}", text)


def with_pictures(markdown: str) -> str:
    """Return a page with a picture in place of each block of Mermaid."""
    numbers = count(1)
    return MERMAID.sub(lambda match: picture(match[1], f"picture-{next(numbers)}"), markdown)


def picture(source: str, name: str) -> str:
    """Draw one block of Mermaid; `name` is unique on its page, because the styles of a picture are for its id."""
    drawn = mermaidx.render(source, theme="base", config={"themeVariables": COLOURS}).svg()
    svg = drawn.replace("my-svg", name)
    return f'<figure class="picture">{" ".join(svg.split())}</figure>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the top directory."""
    for name, address in PAGES.items():
        text = with_links_of_the_site((TOP / name).read_text())
        files.append(File.generated(config, address, content=text))
    for name in SHARED:
        files.append(File.generated(config, name, abs_src_path=str(STATIC / name)))
    return files


def on_env(env: Any, config: MkDocsConfig, files: Files) -> Any:
    """Write `llms.txt`, and each page as Markdown."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    section = ""
    for name, address in addresses(config.nav or []):
        file = files.get_file_from_path(address)
        if file is None or file.page is None:
            raise PluginError(f"{address} is in the navigation, and is no page")
        if name != section:
            lines += ["", f"## {name}", ""]
            section = name
        text = with_links_of_the_site(file.content_string)
        is_made = address.startswith("api/")  # of docstrings, so its Markdown has none of its text
        place = file.url if is_made else address
        lines.append(f"- [{file.page.title}]({place}): {summary(text)}")
        if is_made:
            continue
        target = site / address
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (site / "llms.txt").write_text("\n".join(lines) + "\n")
    return env


def addresses(nav: list[Any]) -> list[tuple[str, str]]:
    """Return the section and the address of each page of the navigation; the decisions are optional, and come last."""
    found = [
        (OPTIONAL if address.startswith("decisions/") else section, address)
        for entry in nav
        for title, inner in entry.items()
        for section in ["Start" if isinstance(inner, str) else title]
        for address in pages_of(inner)
    ]
    return sorted(found, key=lambda pair: pair[0] == OPTIONAL)


def pages_of(entry: Any) -> Iterator[str]:
    """Yield the addresses in an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_of(inner)


def summary(text: str) -> str:
    """Return the first sentence of a page, in one line."""
    paragraphs = re.split(r"\n\n+", text.partition("\n")[2].strip())
    prose = next((each for each in paragraphs if re.match(r"[A-Z`*\[]", each)), "")
    words = re.sub(r"\[([^]]+)]\([^)]+\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.:])\s", words)[0].rstrip(".:") + "."


def on_page_markdown(markdown: str, **_: object) -> str:
    """Mend the links of a page, and draw its pictures."""
    return with_pictures(with_links_of_the_site(markdown))


def on_post_page(output: str, **_: object) -> str:
    """Refuse a page that loads a script, a style or a picture from another host."""
    if found := LOADS_FROM_ELSEWHERE.search(output):
        raise PluginError(f"a page of the site loads from another host: {found[0]}")
    return output
