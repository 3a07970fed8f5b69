"""Rows into topics: what `format("rocketmq")` does when it is written to."""
