"""Dead letters and sending them again. Whoever reads them is no matter here: Spark, or a client."""
