"""Raft groups of brokers: the real files, network and clock around the pure core in `raft`."""
