"""Administration: topics, groups, offsets, messages, brokers and NameServers of a cluster."""

from .admin import Admin

__all__ = ["Admin"]
