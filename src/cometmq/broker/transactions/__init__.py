"""Messages that appear only when their producer's own work has succeeded."""
