"""What another engine finds in a Delta table, as JSON lines, one for each row.

    python read.py ENGINE TABLE

Runs with the packages of scripts/readers, and with nothing of Penstock.
"""

import json
import sys
from importlib import import_module
from pathlib import Path


def by_duckdb(table: str) -> list[str]:
    duckdb = import_module("duckdb")
    folder = Path(str(import_module("duckdb_extension_delta").__file__)).parent
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{next(folder.rglob('delta.duckdb_extension'))}'")
    found = connection.sql(f"SELECT to_json(one) FROM delta_scan('{table}') AS one").fetchall()
    return [row for (row,) in found]


def by_polars(table: str) -> list[str]:
    found = import_module("polars").read_delta(table)
    return [json.dumps(row, default=str) for row in found.to_dicts()]


if __name__ == "__main__":
    engine, table = sys.argv[1:]
    rows = {"duckdb": by_duckdb, "polars": by_polars}[engine](table)
    sys.stdout.write("\n".join(rows))
