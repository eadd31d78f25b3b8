"""Pages of the documentation site that are not in `docs`: README, CONTRIBUTING and CHANGELOG.

mkdocs calls the functions of this module while it builds the site (`hooks` in `mkdocs.yml`). Links
between these files and the pages of `docs` become links between pages of the site.
"""

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

TOP: Final = Path(__file__).parent.parent
PAGES: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
INTO_DOCS: Final = re.compile(r"\]\(docs/")
OUT_OF_DOCS: Final = re.compile(r"\]\((?:\.\./)?(README|CONTRIBUTING|CHANGELOG)\.md")


def with_links_of_the_site(text: str) -> str:
    """Return a page with links that are right on the site."""
    text = INTO_DOCS.sub("](", text)
    return OUT_OF_DOCS.sub(lambda match: f"]({PAGES[f'{match[1]}.md']}", text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the top directory."""
    for name, address in PAGES.items():
        text = with_links_of_the_site((TOP / name).read_text())
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Mend the links of the pages in `docs`."""
    return with_links_of_the_site(markdown)
