"""The Python client: producers, consumers and administration over asyncio."""
