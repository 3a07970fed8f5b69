"""CometMQ's broker beside Apache RocketMQ's: see `__main__`."""
