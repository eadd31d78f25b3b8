"""From what a command line says to an application, its settings, and data that fit it.

Every command that takes an APP and looks at its data begins here, so that none of them reads or writes
entities of classes that are declared otherwise than they are stored.
"""

from pathlib import Path

from penstock.cli.settings import config_of, default_data
from penstock.model.application import App
from penstock.runtime.config import Config
from penstock.runtime.loading import load_app
from penstock.runtime.stores import check_data


def application_of(
    spec: str,
    *,
    data: Path | None = None,
    file: Path | None = None,
    assignments: list[str] | None = None,
    **chosen: str | int | None,
) -> tuple[App, Config]:
    """Load an application and the configuration of a command.

    Args:
        spec: What names the application; see `load_app`.
        data: `--data`.
        file: `--config`.
        assignments: What was given with `--set`.
        chosen: Flags by the name of their setting; None where not given.

    Raises:
        ConfigError: There is no such application, or a setting cannot be used.
        DefinitionError: The application is defined wrongly.
        ClassChanged: The data directory holds entities of other classes; nothing was written.
        OperationalError: Its journal cannot be read.
        IntegrityError: Its journal is damaged.
    """
    app = load_app(spec)
    default = default_data(app.name)
    settings = config_of(default, data=data, file=file, assignments=assignments, **chosen)
    check_data(settings.data, app)
    return app, settings
