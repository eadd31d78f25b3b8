"""The rows that another engine finds in Delta tables: one JSON array to a line for each table.

    python read.py ENGINE PACKAGES TABLE ...

Runs with the packages of scripts/readers, and with nothing of Penstock.
"""

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

Read = Callable[[str], list[str]]


def duckdb(_packages: Path) -> Read:
    engine = import_module("duckdb")
    folder = Path(str(import_module("duckdb_extension_delta").__file__)).parent
    connection = engine.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{next(folder.rglob('delta.duckdb_extension'))}'")

    def read(table: str) -> list[str]:
        found = connection.sql(f"SELECT to_json(one) FROM delta_scan('{table}') AS one").fetchall()
        return [row for (row,) in found]

    return read


def polars(_packages: Path) -> Read:
    engine = import_module("polars")
    return lambda table: [
        json.dumps(row, default=str) for row in engine.read_delta(table).to_dicts()
    ]


def spark(packages: Path) -> Read:
    settings = {
        "spark.jars": ",".join(map(str, (packages / "jars").glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = import_module("pyspark.sql").SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    logs = session._jvm.org.apache.spark.sql.delta.DeltaLog

    def read(table: str) -> list[str]:
        # Delta Lake is built for the Spark release before. Its cache of a table's list of files
        # alone calls a method that this Spark lacks; everything else of it runs.
        logs.forTable(session._jsparkSession, table).unsafeVolatileSnapshot().uncache()
        rows = session.read.format("delta").load(table)
        return [row[0] for row in rows.selectExpr("to_json(struct(*))").collect()]

    return read


def lines(engine: str, packages: str, tables: list[str]) -> Iterator[str]:
    read = {"duckdb": duckdb, "polars": polars, "spark": spark}[engine](Path(packages))
    for table in tables:
        yield f"[{','.join(read(table))}]"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines(sys.argv[1], sys.argv[2], sys.argv[3:])))
