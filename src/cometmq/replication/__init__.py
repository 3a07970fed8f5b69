"""Master and slave: one broker's log, byte for byte, at another."""
