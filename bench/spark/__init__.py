"""Benchmark of the Spark source, sink and pipelines, side by side with Spark's on a real Kafka."""
