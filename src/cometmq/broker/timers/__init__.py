"""Messages that come at a time of their own: RocketMQ's timing wheel with a log, and recall."""
