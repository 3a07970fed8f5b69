"""Message ids: where the broker keeps a message, and who made it when."""

import os
import time
from collections.abc import Iterator

import pytest

from cometmq.protocol.errors import MalformedRecord
from cometmq.protocol.host import Host, pack_host, unpack_host
from cometmq.protocol.message_id import (
    UniqueIdParts,
    UniqueIds,
    offset_id,
    parse_offset_id,
    parse_unique_id,
)

IP = bytes((10, 1, 2, 3))
NOVEMBER_START_MS = 1_793_491_200_000
NOW_MS = 1_794_811_183_885
"""16 November 2026, when RocketMQ made the ids below."""
MONTH_LENGTHS_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Months begin by local time, so the zone is fixed."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class TestOffsetIds:
    @pytest.mark.parametrize(
        ("host", "offset", "text"),
        # From MessageDecoder.createMessageId of RocketMQ 5.5.0.
        [
            (Host("192.168.0.9", 10911), 123456789012, "C0A8000900002A9F0000001CBE991A14"),
            (
                Host("2001:db8::1", 10911),
                5,
                "20010DB800000000000000000000000100002A9F0000000000000005",
            ),
        ],
        ids=["IPv4", "IPv6"],
    )
    def test_they_are_those_of_rocketmq(self, host: Host, offset: int, text: str) -> None:
        assert offset_id(pack_host(*host), offset) == text
        assert parse_offset_id(text) == (host, offset)

    def test_lower_case_is_read_too(self) -> None:
        host, offset = parse_offset_id("c0a8000900002a9f0000001cbe991a14")
        assert (str(host), offset) == ("192.168.0.9:10911", 123456789012)

    @pytest.mark.parametrize("text", ["", "C0A8", "C0A8000900002A9F0000001CBE991A1", "Z" * 32])
    def test_other_texts_are_refused_with_what_is_expected(self, text: str) -> None:
        with pytest.raises(MalformedRecord, match="an offset message id: 32 or 56 hex digits"):
            parse_offset_id(text)

    @pytest.mark.parametrize(
        "text", [" C0A8000900002A9F0000001CBE991A14", "C0A80009 00002A9F 0000001CBE991A14\n"]
    )
    def test_blanks_are_refused(self, text: str) -> None:
        with pytest.raises(MalformedRecord):
            parse_offset_id(text)


class TestHosts:
    @pytest.mark.parametrize(
        ("host", "text", "size"),
        [
            (Host("10.1.2.3", 40001), "10.1.2.3:40001", 8),
            (Host("2001:db8::1", 65535), "[2001:db8::1]:65535", 20),
        ],
    )
    def test_they_are_packed_and_unpacked(self, host: Host, text: str, size: int) -> None:
        packed = pack_host(*host)
        assert len(packed) == size
        assert unpack_host(packed) == host
        assert str(host) == text


class TestUniqueIds:
    def test_an_id_of_rocketmq_is_read(self) -> None:
        # From MessageClientIDSetter.createUniqID of 5.5.0: process 20174, second id of its program.
        text = "FD0000000000000000000000000000024ECE30946E094EAD5B0D0001"
        assert parse_unique_id(text, NOW_MS) == UniqueIdParts("fd00::2", 20174, NOW_MS, 1)

    def test_the_same_program_makes_the_same_id(self) -> None:
        ids = UniqueIds(bytes.fromhex("fd000000000000000000000000000002"), 815033865, 20174)
        assert ids.make(NOW_MS) == "FD0000000000000000000000000000024ECE30946E094EAD5B0D0000"
        assert ids.make(NOW_MS) == "FD0000000000000000000000000000024ECE30946E094EAD5B0D0001"

    def test_an_id_tells_who_made_it_and_when(self) -> None:
        text = UniqueIds(IP, 0x12345678, 0xABCD).make(NOW_MS)
        assert len(text) == 32
        assert parse_unique_id(text, NOW_MS + 1) == UniqueIdParts("10.1.2.3", 0xABCD, NOW_MS, 0)

    def test_ids_of_one_millisecond_differ_by_their_counter(self) -> None:
        ids = UniqueIds(IP, 1, 2)
        made = [ids.make(NOW_MS) for _ in range(1000)]
        assert len(set(made)) == 1000
        assert [parse_unique_id(text, NOW_MS).counter for text in made] == list(range(1000))

    def test_the_counter_starts_anew_after_65536_ids(self) -> None:
        ids = UniqueIds(IP, 1, 2)
        first = ids.make(NOW_MS)
        for _ in range(65535):
            ids.make(NOW_MS)
        assert ids.make(NOW_MS) == first

    def test_without_a_process_number_it_is_our_own(self) -> None:
        text = UniqueIds(IP, 1).make(NOW_MS)
        assert parse_unique_id(text, NOW_MS).pid == os.getpid() & 0xFFFF

    def test_large_process_numbers_and_seeds_are_cut_to_their_fields(self) -> None:
        assert UniqueIds(IP, 1 + (1 << 32), 2 + (1 << 16)).make(NOW_MS) == UniqueIds(IP, 1, 2).make(
            NOW_MS
        )

    def test_time_counts_from_the_begin_of_the_month(self) -> None:
        assert UniqueIds(IP, 1, 2).make(NOVEMBER_START_MS)[20:28] == "00000000"
        last = UniqueIds(IP, 1, 2).make(NOVEMBER_START_MS - 1)
        assert int(last[20:28], 16) == 31 * 86_400_000 - 1

    def test_a_maker_of_ids_follows_the_clock_into_the_next_month_and_back(self) -> None:
        ids = UniqueIds(IP, 1, 2)
        for now_ms in (NOVEMBER_START_MS - 1, NOVEMBER_START_MS, NOVEMBER_START_MS - 1):
            assert parse_unique_id(ids.make(now_ms), now_ms).created_ms == now_ms

    def test_an_id_made_late_last_month_is_not_from_the_future(self) -> None:
        made_ms = NOVEMBER_START_MS - 60_000
        text = UniqueIds(IP, 1, 2).make(made_ms)
        assert parse_unique_id(text, NOVEMBER_START_MS + 60_000).created_ms == made_ms

    def test_the_year_turns_like_any_month(self) -> None:
        january_ms = NOVEMBER_START_MS + (30 + 31) * 86_400_000
        text = UniqueIds(IP, 1, 2).make(january_ms - 1)
        assert parse_unique_id(text, january_ms).created_ms == january_ms - 1

    @pytest.mark.parametrize("month", range(12))
    def test_every_months_last_millisecond_is_its_own(self, month: int) -> None:
        january_2026_ms = 1_767_225_600_000
        end_ms = january_2026_ms + sum(MONTH_LENGTHS_DAYS[: month + 1]) * 86_400_000
        text = UniqueIds(IP, 1, 2).make(end_ms - 1)
        assert int(text[20:28], 16) == MONTH_LENGTHS_DAYS[month] * 86_400_000 - 1

    @pytest.mark.parametrize("text", ["", "FD", "x" * 32, "0" * 31, "0" * 40])
    def test_other_texts_are_refused_with_what_is_expected(self, text: str) -> None:
        with pytest.raises(MalformedRecord, match="a unique message id: 32 or 56 hex digits"):
            parse_unique_id(text, NOW_MS)
