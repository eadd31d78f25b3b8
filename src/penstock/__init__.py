"""Serializable transactions over plain Python classes, run as one dataflow on Apache Spark."""
