"""The Java classes of Penstock. They are compiled when Spark starts, or come compiled with the class archive.

- `QuietFileSystem` serves Spark's checkpoint. Hadoop's local file system forks `chmod` for each file that
  it creates, about ten for each epoch. The checkpoint is only a hint, and its files need no
  permissions of their own.
- `LogSource` is the source of the streaming query. It asks the driver's Python process for offsets, and
  it has no rows. A source that is written in Python would start four processes, one after the
  other: to look the source up, to create it, to plan it, and to ask it.
"""

import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

FILE_SYSTEM: Final = "penstock.QuietFileSystem"
SOURCE: Final = "penstock.LogSource"

TEXT: Final = """
package penstock;

import java.util.Collections;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class QuietFileSystem extends org.apache.hadoop.fs.RawLocalFileSystem {
    public void setPermission(
        org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission) {}
}

class LogOffset extends Offset {
    private final String text;
    LogOffset(String text) { this.text = text; }
    public String json() { return text; }
}

class NoRows implements PartitionReaderFactory {
    public PartitionReader createReader(InputPartition partition) {
        throw new UnsupportedOperationException();
    }
}

public class LogSource
    implements BiFunction, SupportsRead, ScanBuilder, Scan, MicroBatchStream, SupportsAdmissionControl {
    private Function offsets;

    public Object apply(Object session, Object offsets) {
        this.offsets = (Function) offsets;
        return Dataset$.MODULE$.ofRows(
            (SparkSession) session,
            new StreamingRelationV2(
                scala.Option.empty(), name(), this, CaseInsensitiveStringMap.empty(),
                DataTypeUtils.toAttributes(schema()), scala.Option.empty(), scala.Option.empty(),
                scala.Option.empty(), StreamingRelationV2.apply$default$9()));
    }

    public String name() { return "penstock"; }
    public String description() { return "penstock"; }
    public StructType schema() { return new StructType().add("lsn", "long"); }
    public StructType readSchema() { return schema(); }
    public Set capabilities() { return Collections.singleton(TableCapability.MICRO_BATCH_READ); }
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return this; }
    public Scan build() { return this; }
    public MicroBatchStream toMicroBatchStream(String checkpoint) { return this; }
    public Offset initialOffset() { return offset(""); }
    public Offset latestOffset() { throw new UnsupportedOperationException(); }
    public Offset latestOffset(Offset start, ReadLimit limit) { return offset(start.json()); }
    public Offset deserializeOffset(String json) { return new LogOffset(json); }
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return new InputPartition[0];
    }
    public PartitionReaderFactory createReaderFactory() { return new NoRows(); }
    public void commit(Offset end) {}
    public void stop() {}

    private Offset offset(String start) { return new LogOffset((String) offsets.apply(start)); }
}
"""


@cache
def class_loader(gateway: "JavaGateway") -> Any:
    """Return the class loader of the classes in a Java process; compile them if its class path lacks them.

    They are compiled once for each process: py4j keeps the methods of a class by the name of the class,
    so it could not call a second class of that name.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 -- the start of Java needs only the text

    loader = gateway.jvm.java.lang.ClassLoader.getSystemClassLoader()
    try:
        loader.loadClass(SOURCE)
    except Py4JJavaError:  # there is no class archive, or its files are gone
        return _compiled(gateway).getClassLoader()
    return loader


def write_classes(gateway: "JavaGateway", path: Path) -> None:
    """Compile the classes in a Java process, and write them as an archive for a class path."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, code in sorted(_compiled(gateway).getBytecodes().items()):
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))


def _compiled(gateway: "JavaGateway") -> Any:
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(TEXT)
    return compiler
