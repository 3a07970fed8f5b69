"""The message store: CommitLog, ConsumeQueues and key index on RocketMQ's file formats.

`MessageStore` is the door; the other modules are the rooms behind it, one noun a file.
"""
