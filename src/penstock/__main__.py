"""`penstock` and `python -m penstock`: the command line, where what it needs is installed.

An application and its tests, and clients, need little; running an application needs the extra
`server`. Who lacks it hears so, instead of a traceback.
"""

import sys

from penstock.cli.missing_extra import MISSING


def main() -> None:
    """Run the command that the process was started with, and exit."""
    try:
        from penstock.cli.main import main as run  # noqa: PLC0415 -- it may not be installed
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("penstock"):
            raise
        sys.stderr.write(f"error [config] {MISSING.format(module=error.name)}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
