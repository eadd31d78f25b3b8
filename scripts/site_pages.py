"""The pages of the documentation site: those outside of `docs`, their links, and the pictures of all pages.

mkdocs calls the functions of this module while it builds the site (`hooks` in `mkdocs.yml`). README,
CONTRIBUTING and CHANGELOG become pages, and links between them and the pages of `docs` become links of
the site. A block of Mermaid becomes a picture (SVG) here, so no page needs a script
for it. A block that Mermaid refuses, or a page that loads something from another host, ends the build.
"""

import re
from itertools import count
from pathlib import Path
from typing import Final

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
COLOURS: Final = {
    "primaryColor": "#e0f2f1",
    "primaryBorderColor": "#00796b",
    "primaryTextColor": "#102a27",
    "lineColor": "#455a64",
    "tertiaryColor": "#f6f8f8",
    "noteBkgColor": "#fff8e1",
    "noteBorderColor": "#c0a050",
    "edgeLabelBackground": "#ffffff",
    "fontFamily": "sans-serif",
}


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
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Mend the links of a page, and draw its pictures."""
    return with_pictures(with_links_of_the_site(markdown))


def on_post_page(output: str, **_: object) -> str:
    """Refuse a page that loads a script, a style or a picture from another host."""
    if found := LOADS_FROM_ELSEWHERE.search(output):
        raise PluginError(f"a page of the site loads from another host: {found[0]}")
    return output
