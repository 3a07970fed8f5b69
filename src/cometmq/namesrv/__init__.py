"""A NameServer: which brokers live, and where the queues of a topic are."""
