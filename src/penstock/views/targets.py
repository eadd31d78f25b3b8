"""`open_target`: the store of a view, by the kind that the application names and the URL of the settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from penstock.base.ids import Epoch
from penstock.errors import ConfigError
from penstock.model.views.view import ViewPlan
from penstock.views.sqlite_target import SqliteTarget
from penstock.views.target import Target

FILE: Final = "view.sqlite"
"""The file of a view without a URL."""

_SCHEME: Final = "sqlite://"


def open_target(
    plan: ViewPlan,
    url: str,
    folder: Path,
    properties: Mapping[str, str] | None = None,
    time_of: Callable[[Epoch], int | None] = lambda _: None,
) -> Target:
    """Return the target of a view; it connects at its first use.

    Args:
        url: The setting `views.NAME.url`; empty for a target in the folder.
        folder: A directory for this view in the data directory.
        properties: The settings `views.NAME.kafka.…`.
        time_of: Returns when an epoch was committed, in microseconds since 1970, for a target that tells its readers.

    Raises:
        ConfigError: The URL does not fit the kind, or a library is missing.
    """
    match plan.target.kind:
        case "sqlite":
            return SqliteTarget(_sqlite_path(plan, url, folder), plan.name)
        case "postgres":
            if not url:
                raise ConfigError(
                    f"view {plan.name} needs the address of a database: set views.{plan.name}.url"
                )
            try:
                # Only this process needs the driver, and only with such a view.
                from penstock.views.postgres_target import PostgresTarget  # noqa: PLC0415
            except ImportError as error:
                raise ConfigError(
                    f"view {plan.name} needs a library: pip install 'penstock[postgres]'"
                ) from error
            return PostgresTarget(url, plan.target.schema or plan.name, plan.name)
        case "search":
            return _search_target(plan, url, folder)
        case "kafka":
            return _kafka_target(plan, url, folder, properties or {}, time_of)
        case unknown:
            raise ConfigError(f"view {plan.name}: there is no target of the kind {unknown}")


def _search_target(plan: ViewPlan, url: str, folder: Path) -> Target:
    if url:
        raise ConfigError(f"views.{plan.name}.url: a search index is always in the data directory")
    try:
        from penstock.views.search_target import SearchTarget  # noqa: PLC0415 -- an extra, which only some need
    except ImportError as error:
        raise ConfigError(
            f"view {plan.name} is a search index: pip install 'penstock[search]'"
        ) from error
    return SearchTarget(folder, plan.target)


def _kafka_target(
    plan: ViewPlan,
    url: str,
    folder: Path,
    properties: Mapping[str, str],
    time_of: Callable[[Epoch], int | None],
) -> Target:
    if not url:
        raise ConfigError(
            f"view {plan.name} needs the address of brokers: set views.{plan.name}.url"
        )
    try:
        from penstock.views.kafka_target import KafkaTarget  # noqa: PLC0415 -- an extra, which only some need
    except ImportError as error:
        raise ConfigError(
            f"view {plan.name} needs a library: pip install 'penstock[cluster]'"
        ) from error
    return KafkaTarget(url, folder, plan.name, properties, time_of)


def _sqlite_path(plan: ViewPlan, url: str, folder: Path) -> Path:
    if not url:
        return folder / FILE
    path = unquote(url.removeprefix(_SCHEME))
    if not url.startswith(_SCHEME) or not path.startswith("/"):
        raise ConfigError(f"views.{plan.name}.url names no file; write it as sqlite:///PATH")
    return Path(path)
