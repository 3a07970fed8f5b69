"""Producers: from a message to the broker that keeps it, and what became of it."""
