"""Sends: what is checked, what is stored, and what is answered."""

from pathlib import Path
from .brokers import *


@bounded
async def test_smoke(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.send()
        print(answer, answer.text_fields())
        got = await client.pull()
        print(got, messages_in(got))
