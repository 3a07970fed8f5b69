"""Programs for those who work on CometMQ; nothing here is installed."""
