"""Topics read as tables and streams: which queues, from where to where, and their records."""
