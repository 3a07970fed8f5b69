"""Consumers: which queues a member of a group has, how it reads them, and how far it got."""
