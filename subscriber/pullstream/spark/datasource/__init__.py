"""Spark's data source API: registration, stream and batch readers, partitions."""
