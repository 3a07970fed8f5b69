"""Topics and log files as Spark DataFrames, streams and sinks."""
