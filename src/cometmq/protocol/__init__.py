"""RocketMQ's byte formats as pure functions: no files, no sockets, no clock.

Records of the CommitLog, ConsumeQueue entries, index files, properties, ids and batches.
Nothing here imports another room of the house.
"""
