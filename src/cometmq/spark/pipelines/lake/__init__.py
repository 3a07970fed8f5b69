"""Lakes: directories of Parquet files, a Delta table over them or none, that Spark's tasks fill."""
