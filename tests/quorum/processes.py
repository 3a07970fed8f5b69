"""Members of a Raft group as processes, with proxies between them that fail on purpose."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from cometmq.broker.config import FAST_PORT_DISTANCE
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.raft_group import GroupStatus
from cometmq.testing.fault_proxy import FaultProxy
from cometmq.testing.ports import ReservedPort
from cometmq.transport.errors import TransportError
from tests.broker.brokers import Client, until
from tests.replication.pairs import QUICK

START_S = 60.0
ASK_S = 1.0


class MemberProcess:
    """`cometmq broker` over a directory; its ports stay over restarts."""

    def __init__(self, root: Path, member: str) -> None:
        self.id = member
        self.root = root / member
        self.conf = root / f"{member}.conf"
        self.output = root / f"{member}.out"
        self._port, self._raft_port = ReservedPort(FAST_PORT_DISTANCE), ReservedPort()
        self.address = f"127.0.0.1:{self._port.number}"
        self.raft_address = f"127.0.0.1:{self._raft_port.number}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self._port.number

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        with self.output.open("ab") as out:
            before = out.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cometmq.cli.main", "-v", "broker", "-c", str(self.conf)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
        await until(lambda: b"\nready " in b"\n" + self.output.read_bytes()[before:], START_S)

    def signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def terminate(self) -> int:
        """End in order; the exit code."""
        assert self._process is not None
        self._process.terminate()
        process, self._process = self._process, None
        await until(lambda: process.poll() is not None, START_S)
        return process.wait()

    def end(self) -> None:
        self.kill()
        self._port.release()
        self._raft_port.release()

    async def status(self) -> GroupStatus | None:
        """The group as this member sees it; None when it does not answer."""
        try:
            client = await Client.to(self.address, timeout_s=ASK_S)
        except TransportError:
            return None
        try:
            async with asyncio.timeout(ASK_S):
                answer = await client.ask(RequestCode.RAFT_STATUS)
            return msgspec.json.decode(answer.body, type=GroupStatus)
        except (TimeoutError, TransportError):
            return None
        finally:
            client.connection.abort()


class ProcessGroup:
    def __init__(self, root: Path, name_server: str, size: int, **settings: Any) -> None:
        self.members = {f"n{n}": MemberProcess(root, f"n{n}") for n in range(size)}
        self._name_server = name_server
        self._settings = settings
        self.ways = {
            (one, other): FaultProxy(self.members[other].raft_address)
            for one, other in itertools.permutations(self.members, 2)
        }

    async def start(self) -> None:
        for way in self.ways.values():
            way.start()
        for member in self.members.values():
            self._write_conf(member)
        await asyncio.gather(*(member.start() for member in self.members.values()))

    def _write_conf(self, member: MemberProcess) -> None:
        peers = ";".join(
            f"{to}-{self.ways[member.id, to].address if to != member.id else other.raft_address}"
            for to, other in self.members.items()
        )
        settings = {
            **QUICK,
            "storePathRootDir": member.root,
            "listenPort": member.port,
            "namesrvAddr": self._name_server,
            "enableDLegerCommitLog": "true",
            "dLegerPeers": peers,
            "dLegerSelfId": member.id,
            "mappedFileSizeCommitLog": 1024 * 1024,
            "mappedFileSizeConsumeQueue": 20 * 1000,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 50_000,
            "cleanResourceInterval": 200,
            **self._settings,
        }
        member.conf.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))

    async def end(self) -> None:
        for member in self.members.values():
            member.end()
        for way in self.ways.values():
            await way.stop()

    # -- faults ----------------------------------------------------------------------------------

    def lose(self, *, of: str | None = None, to: str | None = None) -> None:
        """Lose all that one says, or all that is said to it."""
        for (one, other), way in self.ways.items():
            if one == of or other == to:
                way.drop()

    def isolate(self, member: str) -> None:
        self.lose(of=member, to=member)

    async def heal(self) -> None:
        """Everybody is up, awake, and hears everybody."""
        for way in self.ways.values():
            way.restore()
        for member in self.members.values():
            member.signal(signal.SIGCONT)
            if not member.is_up:
                await member.start()

    # -- facts -----------------------------------------------------------------------------------

    async def leader(self, timeout_s: float = 20.0) -> MemberProcess:
        """The one that serves, of the newest epoch that any does."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = await asyncio.gather(*(m.status() for m in self.members.values()))
                serving = [status for status in found if status is not None and status.serves]
                if serving:
                    newest = max(serving, key=lambda status: status.epoch)
                    return self.members[newest.member]
                await asyncio.sleep(0.05)

    async def in_step(self, timeout_s: float = 60.0) -> None:
        """Until all have the same log, and all of it confirmed."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = await asyncio.gather(*(m.status() for m in self.members.values()))
                ends = {(s.confirmed, s.log_end) for s in found if s is not None}
                one = next(iter(ends), (0, 1))
                if None not in found and len(ends) == 1 and one[0] == one[1]:
                    return
                await asyncio.sleep(0.1)
