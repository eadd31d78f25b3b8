"""From a command line to an application, its settings, and data that fit it.

Every command that takes an APP and looks at its data begins here. So no command reads or writes entities
whose class is declared differently from how they are stored.
"""

from pathlib import Path

from penstock.cli.options import config_of, default_data
from penstock.model.application import App
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.loading import load_app


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
        spec: The name of the application; see `load_app`.
        data: `--data`.
        file: `--config`.
        assignments: The settings of `--set`.
        chosen: Flags by the name of their setting; None if not given.

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
    DataDirectory(settings.data).check_app(app)
    return app, settings
