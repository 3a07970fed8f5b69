"""CometMQ: RocketMQ's messaging system in Python, with Spark as its data pipeline."""

__version__ = "0.1.0"
