"""The `cometmq` command: thin commands over what the other packages do."""
