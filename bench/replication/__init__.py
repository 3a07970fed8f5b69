"""Replication beside Apache RocketMQ's: `python -m bench.replication`."""
