"""A broker: topics, sends, pulls, groups, offsets, locks, delays, and their administration."""
