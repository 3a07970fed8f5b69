# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `_reference.py`: the same functions at byte level.

Formats and rules are told there and in `layout.py`; here is only what makes them quick: pointers
instead of slices, no object per record, one checksum pass. A differential test holds both equal.
"""

cimport cython
from array import array
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from . import java
from .columns import COLUMNS, NUMBERS, Choice, Column, PropertyColumns, Walked
from .express import Taken
from .flags import is_queued
from .errors import IllegalMessage, MalformedRecord
from .batch import MESSAGES_MAX as BATCH_MESSAGES_MAX
from .message import Appended, Message
from .properties import RECORD_CRC, decode_properties, without_property
from .scan import Damage, Run, Scan, Selection, Stop

ctypedef const uint8_t* bytes_t

cdef enum:
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    TRANSACTION = 0xC
    COMMIT = 0x8
    ROLLBACK = 0xC
    FILE_END = 8
    FIXED_MIN = 91
    ENTRY = 20
    KEY = 20
    SEAL = 20
    SEAL_NAME = 9
    TOPIC_MAX = 255
    PROPERTIES_MAX = 32767
    INDEX_HEADER = 40
    INDEX_ITEM = 20
    HOLE_SIZE = 0x7FFFFFFF

cdef uint32_t V1 = 0xDAA320A7
cdef uint32_t V2 = 0xDAA320AB
cdef uint32_t BLANK = 0xCBD43194
cdef const char* SEAL_PREFIX = b"__CRC32#\x01"
cdef const char* SCHEDULE = b"SCHEDULE_TOPIC_XXXX"
cdef enum:
    SCHEDULE_SIZE = 19

# Damage as the checks return it; the numbers are those of scan.Damage.
cdef enum:
    BAD_SIZE = -1
    BAD_MAGIC = -2
    BAD_POSITION = -3
    BAD_LENGTHS = -4
    BAD_CHECKSUM = -5
    BAD_QUEUE_OFFSET = -6


# -- numbers in big-endian order ------------------------------------------------------------------

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define big32(value) (value)
    #define big64(value) (value)
    #else
    #define big32(value) __builtin_bswap32(value)
    #define big64(value) __builtin_bswap64(value)
    #endif
    static inline uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return big32(v); }
    static inline uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return big64(v); }
    static inline void put32(uint8_t *p, uint32_t v) { v = big32(v); memcpy(p, &v, 4); }
    static inline void put64(uint8_t *p, uint64_t v) { v = big64(v); memcpy(p, &v, 8); }
    """
    uint32_t get32(bytes_t p) noexcept nogil
    uint64_t get64(bytes_t p) noexcept nogil
    void put32(uint8_t* p, uint32_t value) noexcept nogil
    void put64(uint8_t* p, uint64_t value) noexcept nogil


# -- CRC-32: by carry-less multiplication where the processor has it, else by tables --------------

cdef uint32_t[8][256] CRC


cdef void make_crc_tables() noexcept:
    cdef uint32_t value
    cdef int i, table, _
    for i in range(256):
        value = i
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        CRC[0][i] = value
    for table in range(1, 8):
        for i in range(256):
            value = CRC[table - 1][i]
            CRC[table][i] = (value >> 8) ^ CRC[0][value & 0xFF]


make_crc_tables()


cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    static int can_fold(void) { return __builtin_cpu_supports("pclmul"); }
    /* Multiplying by powers of x modulo the polynomial moves a block of 16 bytes on over those that
       follow: by x^576 and x^512 over 64 bytes, by x^160 and x^96 over 16, all bit-reversed. What is
       left in the end has the checksum of all that went in. Four blocks at a time, since one
       multiplication need not wait for the other. */
    #define FOLD __attribute__((target("pclmul"), always_inline)) static inline
    FOLD __m128i block_at(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
    FOLD __m128i moved(__m128i sum, __m128i factors, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(sum, factors, 0x00);
        __m128i high = _mm_clmulepi64_si128(sum, factors, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }
    __attribute__((target("pclmul")))
    static void fold(uint32_t crc, const uint8_t *p, Py_ssize_t blocks, uint8_t *rest) {
        const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
        const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
        __m128i sum = _mm_xor_si128(block_at(p), _mm_cvtsi32_si128(crc));
        if (blocks >= 8) {
            __m128i sum1 = block_at(p + 16), sum2 = block_at(p + 32), sum3 = block_at(p + 48);
            for (blocks -= 4, p += 64; blocks >= 4; blocks -= 4, p += 64) {
                sum = moved(sum, by_64, block_at(p));
                sum1 = moved(sum1, by_64, block_at(p + 16));
                sum2 = moved(sum2, by_64, block_at(p + 32));
                sum3 = moved(sum3, by_64, block_at(p + 48));
            }
            sum = moved(moved(moved(sum, by_16, sum1), by_16, sum2), by_16, sum3);
        } else {
            blocks--;
            p += 16;
        }
        for (; blocks; blocks--, p += 16) sum = moved(sum, by_16, block_at(p));
        _mm_storeu_si128((__m128i *)rest, sum);
    }
    #else
    static int can_fold(void) { return 0; }
    static void fold(uint32_t crc, const uint8_t *p, Py_ssize_t blocks, uint8_t *rest) {}
    #endif
    """
    bint can_fold() noexcept
    void fold(uint32_t crc, bytes_t p, Py_ssize_t blocks, uint8_t* rest) noexcept nogil

cdef bint FOLDS = can_fold()
cdef enum:
    FOLD_FROM = 48  # below this the tables are as quick


cdef uint32_t crc31(bytes_t p, Py_ssize_t size) noexcept nogil:
    """CRC-32 without its sign bit, as RocketMQ keeps it."""
    cdef uint32_t crc = ~<uint32_t>0
    cdef uint8_t[16] rest
    if FOLDS and size >= FOLD_FROM:
        fold(crc, p, size // 16, rest)
        crc = crc_update(0, rest, 16)
        p += size // 16 * 16
        size %= 16
    return ~crc_update(crc, p, size) & <uint32_t>0x7FFFFFFF


cdef uint32_t crc_update(uint32_t crc, bytes_t p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t low, high
    while size >= 8:
        low = crc ^ (p[0] | (<uint32_t>p[1] << 8) | (<uint32_t>p[2] << 16) | (<uint32_t>p[3] << 24))
        high = p[4] | (<uint32_t>p[5] << 8) | (<uint32_t>p[6] << 16) | (<uint32_t>p[7] << 24)
        crc = (CRC[7][low & 0xFF] ^ CRC[6][(low >> 8) & 0xFF]
               ^ CRC[5][(low >> 16) & 0xFF] ^ CRC[4][low >> 24]
               ^ CRC[3][high & 0xFF] ^ CRC[2][(high >> 8) & 0xFF]
               ^ CRC[1][(high >> 16) & 0xFF] ^ CRC[0][high >> 24])
        p += 8
        size -= 8
    if size >= 4:
        low = crc ^ (p[0] | (<uint32_t>p[1] << 8) | (<uint32_t>p[2] << 16) | (<uint32_t>p[3] << 24))
        crc = (CRC[3][low & 0xFF] ^ CRC[2][(low >> 8) & 0xFF]
               ^ CRC[1][(low >> 16) & 0xFF] ^ CRC[0][low >> 24])
        p += 4
        size -= 4
    while size:
        crc = (crc >> 8) ^ CRC[0][(crc ^ p[0]) & 0xFF]
        p += 1
        size -= 1
    return crc


cdef void put_digits(uint8_t* p, uint32_t crc) noexcept nogil:
    cdef int i
    for i in range(10):
        p[i] = 48 + crc % 10
        crc //= 10
    p[10] = 2


# -- encode ---------------------------------------------------------------------------------------

cdef struct Text:
    bytes_t at
    Py_ssize_t size


cdef enum:
    SCRATCH_SIZE = 16384

cdef uint8_t[SCRATCH_SIZE] SCRATCH


# A record before it is written, as pointers into what the sender gave.
cdef struct Draft:
    int32_t queue_id
    int32_t flag
    uint32_t sys_flag
    int32_t reconsume_times
    int64_t born_timestamp
    int64_t prepared
    Text born_host
    Text store_host
    Text topic
    Text body
    Text properties
    bint closing  # the last property has no end of its own
    Text added  # properties behind those
    bint sealed


cdef Py_ssize_t draft_properties(Draft* draft) noexcept nogil:
    """How many bytes of properties the record will have."""
    return (draft.properties.size + draft.closing + draft.added.size
            + (SEAL if draft.sealed else 0))


cdef Py_ssize_t draft_size(Draft* draft) noexcept nogil:
    return (74 + draft.born_host.size + draft.store_host.size + draft.body.size
            + (2 if draft.topic.size > 127 else 1) + draft.topic.size + draft_properties(draft))


cdef uint8_t* put_text(uint8_t* p, Text text) noexcept nogil:
    memcpy(p, text.at, text.size)
    return p + text.size


cdef void write_record(uint8_t* target, Draft* draft, Py_ssize_t size, int64_t queue_offset,
                       int64_t physical_offset, int64_t store_timestamp) noexcept nogil:
    """Write a draft of `size` bytes to where there is room for it."""
    cdef Py_ssize_t properties_size = draft_properties(draft)
    cdef bint long_topic = draft.topic.size > 127
    # A record is put together in memory that is warm and copied at once: its checksum would have to
    # wait for the log's fresh pages otherwise.
    cdef uint8_t* start = &SCRATCH[0] if size <= SCRATCH_SIZE else target
    cdef uint8_t* p = start
    put32(p, <uint32_t>size)
    put32(p + 4, V2 if long_topic else V1)
    put32(p + 8, crc31(draft.body.at, draft.body.size))
    put32(p + 12, <uint32_t>draft.queue_id)
    put32(p + 16, <uint32_t>draft.flag)
    put64(p + 20, queue_offset)
    put64(p + 28, physical_offset)
    put32(p + 36, draft.sys_flag)
    put64(p + 40, <uint64_t>draft.born_timestamp)
    p = put_text(p + 48, draft.born_host)
    put64(p, store_timestamp)
    p = put_text(p + 8, draft.store_host)
    put32(p, <uint32_t>draft.reconsume_times)
    put64(p + 4, <uint64_t>draft.prepared)
    put32(p + 12, <uint32_t>draft.body.size)
    p = put_text(p + 16, draft.body)
    if long_topic:
        p[0] = draft.topic.size >> 8
        p += 1
    p[0] = draft.topic.size & 0xFF
    p = put_text(p + 1, draft.topic)
    p[0] = properties_size >> 8
    p[1] = properties_size & 0xFF
    p = put_text(p + 2, draft.properties)
    if draft.closing:
        p[0] = 2
        p += 1
    p = put_text(p, draft.added)
    if draft.sealed:
        memcpy(p, SEAL_PREFIX, SEAL_NAME)
        put_digits(p + SEAL_NAME, crc31(start, size - SEAL))
    if start != target:
        memcpy(target, start, size)


cdef inline Text text_in(bytes data) noexcept:
    return Text(<bytes_t>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef uint32_t host_flags(Py_ssize_t born_size, Py_ssize_t store_size) noexcept nogil:
    return (BORN_V6 if born_size == 20 else 0) | (STORE_V6 if store_size == 20 else 0)


cdef Py_ssize_t encode(Py_buffer* buffer, Py_ssize_t position, Py_ssize_t limit, message,
                       str topic, bytes body, number_queue, number_flags, int64_t queue_offset,
                       int64_t physical_offset, int64_t store_timestamp, bytes store_host,
                       bint sealed) except -1:
    """Some of the message's fields come along: whoever calls has looked at them already."""
    cdef bytes properties = message.properties
    cdef bytes born_host = message.born_host
    cdef Draft draft
    draft.topic.at = <bytes_t>PyUnicode_AsUTF8AndSize(topic, &draft.topic.size)
    if not 0 < draft.topic.size <= TOPIC_MAX:
        raise IllegalMessage(f"topic has {draft.topic.size} bytes, 1 to {TOPIC_MAX} are allowed")
    if sealed and has_mark(properties):
        properties = without_property(properties, b"__CRC32#")
    draft.properties = text_in(properties)
    draft.closing = (sealed and draft.properties.size > 0
                     and draft.properties.at[draft.properties.size - 1] != 2)
    draft.added = Text(&SCRATCH[0], 0)
    draft.sealed = sealed
    if draft_properties(&draft) > PROPERTIES_MAX:
        raise IllegalMessage(
            f"properties have {draft_properties(&draft)} bytes, {PROPERTIES_MAX} are allowed"
        )
    # All numbers before the first byte is written: nothing is left behind by one that is too large.
    cdef int32_t signed_flag
    try:
        draft.queue_id = number_queue
        draft.flag = message.flag
        signed_flag = number_flags
        draft.born_timestamp = message.born_timestamp
        draft.reconsume_times = message.reconsume_times
        draft.prepared = message.prepared_transaction_offset
    except OverflowError as error:
        raise IllegalMessage(f"a number does not fit its field: {error}") from error
    draft.sys_flag = (<uint32_t>signed_flag & ~<uint32_t>(BORN_V6 | STORE_V6)
                      | host_flags(host_size(born_host), host_size(store_host)))
    draft.born_host = text_in(born_host)
    draft.store_host = text_in(store_host)
    draft.body = text_in(body)
    cdef Py_ssize_t size = draft_size(&draft)
    if position + size + FILE_END > limit:
        return 0
    if position < 0 or position + size > buffer.len:
        raise ValueError("the record lies outside the buffer")
    write_record(<uint8_t*>buffer.buf + position, &draft, size, queue_offset, physical_offset,
                 store_timestamp)
    return size


cdef bint has_mark(bytes properties) noexcept:
    """Whether a seal may be among the properties: its name is the only one that ends in `#`."""
    return memchr(PyBytes_AS_STRING(properties), 35, PyBytes_GET_SIZE(properties)) != NULL


def encode_record(view, Py_ssize_t position, Py_ssize_t limit, message, int64_t queue_offset,
                  int64_t physical_offset, int64_t store_timestamp, bytes store_host, bint sealed):
    cdef Py_buffer buffer
    PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
    try:
        return encode(&buffer, position, limit, message, message.topic, message.body,
                      message.queue_id, message.sys_flag, queue_offset, physical_offset,
                      store_timestamp, store_host, sealed)
    finally:
        PyBuffer_Release(&buffer)


def append_records(view, Py_ssize_t position, Py_ssize_t limit, int64_t base, messages,
                   Py_ssize_t number, dict next_offsets, int64_t store_timestamp,
                   bytes store_host, bint sealed, Py_ssize_t body_bytes_max, list placed):
    cdef Py_buffer buffer
    cdef Py_ssize_t size, count = len(messages)
    cdef bint queued
    cdef int64_t queue_offset
    cdef bytes body
    cdef object time_stored = store_timestamp
    PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
    try:
        while number < count:
            message = messages[number]
            body = message.body
            topic, queue_id, sys_flag = message.topic, message.queue_id, message.sys_flag
            queue = (topic, queue_id)
            next_offset = next_offsets.get(queue)
            if next_offset is None or PyBytes_GET_SIZE(body) > body_bytes_max:
                break
            queued = sys_flag == 0 or is_queued(sys_flag)
            queue_offset = next_offset if queued else 0
            size = encode(&buffer, position, limit, message, topic, body, queue_id, sys_flag,
                          queue_offset, base + position, store_timestamp, store_host, sealed)
            if size == 0:
                break
            if queued:
                next_offsets[queue] = queue_offset + 1
            else:
                next_offset = 0
            placed.append(Appended(base + position, size, next_offset, time_stored))
            position += size
            number += 1
    finally:
        PyBuffer_Release(&buffer)
    return number


cdef Py_ssize_t host_size(bytes host) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(host)
    if size != 8 and size != 20:
        raise IllegalMessage(f"a packed host has 8 or 20 bytes, not {size}")
    return size


# -- check ----------------------------------------------------------------------------------------

cdef struct Parts:
    Py_ssize_t store_time
    Py_ssize_t body
    Py_ssize_t body_size
    Py_ssize_t topic
    Py_ssize_t topic_size
    Py_ssize_t properties
    Py_ssize_t properties_size


cdef bint find_parts(bytes_t record, Py_ssize_t size, Parts* parts) noexcept nogil:
    """Where the parts lie, counted from the record's start; 0 when the lengths don't add up."""
    cdef uint32_t sys_flag = get32(record + 36)
    parts.store_time = 48 + (20 if sys_flag & BORN_V6 else 8)
    cdef Py_ssize_t at = parts.store_time + 8 + (20 if sys_flag & STORE_V6 else 8) + 12
    if at + 4 > size:
        return 0
    parts.body_size = <int32_t>get32(record + at)
    parts.body = at + 4
    cdef int topic_field = 1 if record[7] == 0xA7 else 2
    at = parts.body + parts.body_size
    if parts.body_size < 0 or at + topic_field > size:
        return 0
    if topic_field == 1:
        parts.topic_size = record[at] if record[at] < 128 else -1
    else:
        parts.topic_size = (record[at] << 8) | record[at + 1]
        if parts.topic_size >= 0x8000:
            return 0
    parts.topic = at + topic_field
    at = parts.topic + parts.topic_size
    if parts.topic_size < 0 or at + 2 > size:
        return 0
    parts.properties_size = (record[at] << 8) | record[at + 1]
    parts.properties = at + 2
    return parts.properties_size < 0x8000 and at + 2 + parts.properties_size == size


cdef bint checksum_holds(bytes_t record, Py_ssize_t size, Parts* parts) noexcept nogil:
    cdef bytes_t tail = record + size - SEAL
    cdef int64_t told
    cdef bint named, matches
    if parts.properties_size >= SEAL:
        named = memcmp(tail, SEAL_PREFIX, SEAL_NAME) == 0
        told = told_crc(tail + SEAL_NAME)
        if named or told >= 0:
            matches = told >= 0 and told == <int64_t>crc31(record, size - SEAL)
            if named or matches:
                return named and matches
        if memchr(tail, 0, SEAL) != NULL:
            return 0
    elif parts.properties_size and memchr(record + parts.properties, 0,
                                          parts.properties_size) != NULL:
        return 0
    return parts.body_size == 0 or crc31(record + parts.body, parts.body_size) == get32(record + 8)


cdef int64_t told_crc(bytes_t p) noexcept nogil:
    """The number of ten digits, least significant first; -1 when a property does not end so."""
    cdef uint64_t v = get64(p)
    if (p[10] != 2 or not 48 <= p[9] <= 57 or not 48 <= p[8] <= 57
            or ((v & <uint64_t>0xF0F0F0F0F0F0F0F0)
                | (((v + <uint64_t>0x0606060606060606) & <uint64_t>0xF0F0F0F0F0F0F0F0) >> 4))
            != <uint64_t>0x3333333333333333):
        return -1
    # Eight digits at once: neighbours become pairs, pairs fours, fours the number.
    v = (v & <uint64_t>0x0F0F0F0F0F0F0F0F) * 2561 >> 8
    v = (v & <uint64_t>0x00FF00FF00FF00FF) * 6553601 >> 16
    v = (v & <uint64_t>0x0000FFFF0000FFFF) * <uint64_t>42949672960001 >> 32
    return <int64_t>v + (p[8] - 48) * <int64_t>100000000 + (p[9] - 48) * <int64_t>1000000000


cdef Py_ssize_t check(bytes_t record, Py_ssize_t room, int64_t physical, Parts* parts,
                      bint verify) noexcept nogil:
    if room < FILE_END:
        return BAD_SIZE
    cdef uint32_t magic = get32(record + 4)
    if magic == BLANK:
        return 0
    if magic != V1 and magic != V2:
        return BAD_MAGIC
    cdef Py_ssize_t size = <int32_t>get32(record)
    if size < FIXED_MIN or size > room:
        return BAD_SIZE
    if <int64_t>get64(record + 28) != physical:
        return BAD_POSITION
    if not find_parts(record, size, parts):
        return BAD_LENGTHS
    return size if not verify or checksum_holds(record, size, parts) else BAD_CHECKSUM


def check_record(view, Py_ssize_t position, Py_ssize_t end, int64_t physical_offset):
    cdef Py_buffer buffer
    cdef Parts parts
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        require_range(&buffer, position, end)
        return check(<bytes_t>buffer.buf + position, end - position, physical_offset, &parts, True)
    finally:
        PyBuffer_Release(&buffer)


def split_records(bytes data):
    cdef bytes_t start = <bytes_t>PyBytes_AS_STRING(data)
    cdef bytes_t record
    cdef Py_ssize_t at = 0, end = PyBytes_GET_SIZE(data), size
    cdef Parts parts
    cdef list records = []
    while at < end:
        check_whole(start, at, end, &parts)
        record = start + at
        size = <int32_t>get32(record)
        records.append((
            piece(record, parts.topic, parts.topic + parts.topic_size),
            <int32_t>get32(record + 12), <int64_t>get64(record + 20), <int64_t>get64(record + 28),
            <int32_t>get32(record + parts.body - 16), <int64_t>get64(record + 40),
            <int64_t>get64(record + parts.store_time), <int32_t>get32(record + 16),
            <int32_t>get32(record + 36), piece(record, parts.body, parts.body + parts.body_size),
            piece(record, parts.properties, size), piece(record, 48, parts.store_time),
            piece(record, parts.store_time + 8, parts.body - 16),
            <int64_t>get64(record + parts.body - 12),
        ))
        at += size
    return records


cdef bytes piece(bytes_t record, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char*>record + start, end - start)


cdef int require_range(Py_buffer* buffer, Py_ssize_t start, Py_ssize_t end) except -1:
    if start < 0 or end > buffer.len:
        raise ValueError(f"range {start} to {end} lies outside a buffer of {buffer.len} bytes")
    return 0


cdef int require_whole(Py_ssize_t size, Py_ssize_t unit) except -1:
    if size % unit:
        raise ValueError(f"{size} bytes are no whole number of units of {unit}")
    return 0


# -- scan -----------------------------------------------------------------------------------------

cdef list POOL = []
cdef enum:
    POOL_MAX = 256
    POOLED_BYTES_MAX = 65536


cdef Growing new_growing():
    """A used one if there is: making them anew costs more than filling them."""
    return <Growing>POOL.pop() if POOL else Growing()


@cython.final
cdef class Growing:
    """Bytes that grow."""
    cdef uint8_t* data
    cdef Py_ssize_t size, room
    cdef int64_t first_offset

    def __dealloc__(self):
        free(self.data)

    cdef inline uint8_t* extend(self, Py_ssize_t more) except NULL:
        if self.size + more > self.room:
            self.grow(more)
        self.size += more
        return self.data + self.size - more

    cdef int grow(self, Py_ssize_t more) except -1:
        self.room = max(self.room * 2, self.size + more, 256)
        cdef uint8_t* moved = <uint8_t*>realloc(self.data, self.room)
        if moved == NULL:
            raise MemoryError
        self.data = moved
        return 0

    cdef bytes copy(self):
        return PyBytes_FromStringAndSize(<char*>self.data, self.size)

    cdef bytes take(self):
        """The bytes; the object goes back to the pool."""
        cdef bytes taken = self.copy()
        self.size = 0
        if self.room <= POOLED_BYTES_MAX and len(POOL) < POOL_MAX:
            POOL.append(self)
        return taken


# The properties that dispatch looks at; the last one of a name counts.
cdef struct Known:
    Text tags
    Text keys
    Text unique
    Text delay


cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    /* Which of the 64 bytes at `p` end a property. Up to `readable` there is memory to read. */
    static inline uint64_t property_ends(const uint8_t *p, const uint8_t *readable) {
        uint8_t copy[64] = {0};
        uint64_t found = 0;
        if (readable - p < 64) p = memcpy(copy, p, readable - p);
    #if defined(__SSE2__)
        for (int at = 0; at < 64; at += 16) {
            __m128i block = _mm_loadu_si128((const __m128i *)(p + at));
            int bits = _mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8(2)));
            found |= (uint64_t)bits << at;
        }
    #else
        for (int at = 0; at < 64; at++) found |= (uint64_t)(p[at] == 2) << at;
    #endif
        return found;
    }
    #define lowest_bit(bits) __builtin_ctzll(bits)
    """
    uint64_t property_ends(bytes_t p, bytes_t readable) noexcept nogil
    int lowest_bit(uint64_t bits) noexcept nogil


cdef void find_known(bytes_t p, Py_ssize_t size, Known* known, bytes_t readable) noexcept nogil:
    cdef bytes_t end = p + size
    cdef bytes_t entry = p
    cdef bytes_t entry_end
    cdef uint64_t ends
    memset(known, 0, sizeof(Known))
    while p < end:
        ends = property_ends(p, readable)
        if end - p < 64:
            ends &= (<uint64_t>1 << (end - p)) - 1
        while ends:
            entry_end = p + lowest_bit(ends)
            note_known(entry, entry_end, known)
            entry = entry_end + 1
            ends &= ends - 1
        p += 64
    if entry < end:
        note_known(entry, end, known)


cdef inline void note_known(bytes_t p, bytes_t end, Known* known) noexcept nogil:
    if end - p <= 5:
        return
    if p[4] == 1:
        if memcmp(p, b"TAGS", 4) == 0:
            known.tags = Text(p + 5, end - p - 5)
        elif memcmp(p, b"KEYS", 4) == 0:
            known.keys = Text(p + 5, end - p - 5)
    elif end - p > 9 and p[8] == 1 and memcmp(p, b"UNIQ_KEY", 8) == 0:
        known.unique = Text(p + 9, end - p - 9)
    elif end - p > 6 and p[5] == 1 and memcmp(p, b"DELAY", 5) == 0:
        known.delay = Text(p + 6, end - p - 6)


cdef bint ascii_hash(bytes_t p, Py_ssize_t size, uint32_t* value) noexcept nogil:
    """Go on with Java's hash; 0 when the text is not plain ASCII."""
    cdef bytes_t end = p + size
    cdef uint8_t seen = 0
    cdef uint32_t h = value[0]
    # Four at a time, since each step has to wait for the one before.
    while end - p >= 4:
        seen |= p[0] | p[1] | p[2] | p[3]
        h = 923521 * h + (<uint32_t>29791 * p[0] + <uint32_t>961 * p[1] + <uint32_t>31 * p[2] + p[3])
        p += 4
    while p < end:
        seen |= p[0]
        h = 31 * h + p[0]
        p += 1
    value[0] = h
    return seen < 128


cdef str text_of(bytes_t p, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<char*>p, size).decode("utf-8", "replace")


cdef int64_t tag_hash(Text tags) except? -1:
    cdef uint32_t value = 0
    if ascii_hash(tags.at, tags.size, &value):
        return <int32_t>value
    return java.string_hash(text_of(tags.at, tags.size))


cdef int32_t key_hash(bytes_t topic, Py_ssize_t topic_size, Text key, bint is_tag) except -1:
    cdef uint32_t value = 0
    cdef int32_t signed
    if (ascii_hash(topic, topic_size, &value)
            and ascii_hash(<bytes_t>b"#T#", 3 if is_tag else 1, &value)
            and ascii_hash(key.at, key.size, &value)):
        signed = <int32_t>value
        if signed == INT32_MIN:
            return 0
        return -signed if signed < 0 else signed
    cdef str text = text_of(key.at, key.size)
    return java.key_hash(text_of(topic, topic_size), java.tag_key(text) if is_tag else text)


cdef int64_t decimal(Text text) noexcept nogil:
    cdef int64_t value = 0
    cdef Py_ssize_t i
    if not 0 < text.size < 10:
        return 0
    for i in range(text.size):
        if not 48 <= text.at[i] <= 57:
            return 0
        value = value * 10 + text.at[i] - 48
    return value


cdef class Collected:
    cdef Growing keys
    cdef tuple delays_ms
    cdef list done
    cdef dict runs
    cdef bytes queue
    cdef Growing run

    def __cinit__(self, tuple delays_ms):
        self.queue = b""
        self.keys = new_growing()
        self.delays_ms = delays_ms
        self.done = []
        self.runs = {}

    cdef int add(self, bytes_t record, Py_ssize_t size, Parts* parts, int64_t physical,
                 int64_t stored) except -1:
        cdef uint32_t transaction = get32(record + 36) & TRANSACTION
        cdef Known known
        find_known(record + parts.properties, parts.properties_size, &known, record + size)
        if transaction == 0 or transaction == COMMIT:
            self.add_entry(record, size, parts, physical, self.tag_code(record, parts, &known, stored))
        if transaction != ROLLBACK:
            if known.unique.size:
                self.add_key(record, parts, known.unique, False, physical, stored)
            self.add_keys(record, parts, known.keys, physical, stored)
            if known.tags.size:
                self.add_key(record, parts, known.tags, True, physical, stored)
        return 0

    cdef int64_t tag_code(self, bytes_t record, Parts* parts, Known* known,
                          int64_t stored) except? -1:
        cdef int64_t level
        if (parts.topic_size == SCHEDULE_SIZE and self.delays_ms
                and memcmp(record + parts.topic, SCHEDULE, SCHEDULE_SIZE) == 0):
            level = decimal(known.delay)
            if level > 0:
                return stored + <int64_t>self.delays_ms[min(level, len(self.delays_ms)) - 1]
        return tag_hash(known.tags)

    cdef int add_entry(self, bytes_t record, Py_ssize_t size, Parts* parts, int64_t physical,
                       int64_t tag_code) except -1:
        cdef int64_t queue_offset = get64(record + 20)
        cdef Growing run = self.run_of(record, parts)
        if run is None or run.first_offset + run.size // ENTRY != queue_offset:
            if run is not None:
                self.done.append(Run(self.queue, run.first_offset, run.take()))
            run = new_growing()
            run.first_offset = queue_offset
            self.runs[self.queue] = self.run = run
        cdef uint8_t* entry = run.extend(ENTRY)
        put64(entry, physical)
        put32(entry + 8, <uint32_t>size)
        put64(entry + 12, tag_code)
        return 0

    cdef Growing run_of(self, bytes_t record, Parts* parts):
        """The run of the record's queue, which becomes the current one: mostly it is already."""
        cdef const char* known = PyBytes_AS_STRING(self.queue)
        if (PyBytes_GET_SIZE(self.queue) == parts.topic_size + 4
                and memcmp(known + parts.topic_size, record + 12, 4) == 0
                and memcmp(known, record + parts.topic, parts.topic_size) == 0):
            return self.run
        cdef bytes queue = PyBytes_FromStringAndSize(NULL, parts.topic_size + 4)
        cdef char* text = PyBytes_AS_STRING(queue)
        memcpy(text, record + parts.topic, parts.topic_size)
        memcpy(text + parts.topic_size, record + 12, 4)
        self.queue, self.run = queue, self.runs.get(queue)
        return self.run

    cdef int add_keys(self, bytes_t record, Parts* parts, Text keys, int64_t physical,
                      int64_t stored) except -1:
        cdef bytes_t p = keys.at
        cdef bytes_t end = keys.at + keys.size
        cdef bytes_t blank
        cdef Text key
        while p < end:
            blank = <bytes_t>memchr(p, 32, end - p)
            if blank == NULL:
                blank = end
            if blank > p:
                key.at = p
                key.size = blank - p
                self.add_key(record, parts, key, False, physical, stored)
            p = blank + 1
        return 0

    cdef int add_key(self, bytes_t record, Parts* parts, Text key, bint is_tag,
                     int64_t physical, int64_t stored) except -1:
        cdef int32_t hashed = key_hash(record + parts.topic, parts.topic_size, key, is_tag)
        cdef uint8_t* item = self.keys.extend(KEY)
        put32(item, <uint32_t>hashed)
        put64(item + 4, physical)
        put64(item + 12, stored)
        return 0

    cdef list close(self):
        cdef Growing run
        for queue, run in self.runs.items():
            self.done.append(Run(queue, run.first_offset, run.take()))
        return self.done


cdef tuple STOPS = tuple(Stop)
cdef tuple DAMAGES = tuple(Damage)


def scan_records(view, Py_ssize_t start, Py_ssize_t end, int64_t base, tuple delays_ms,
                 bint collect, bint verify=True):
    cdef Py_buffer buffer
    cdef Parts parts
    cdef Py_ssize_t position = start, size = 1, count = 0
    cdef int64_t last_timestamp = 0
    cdef Collected collected = Collected(delays_ms)
    cdef bytes_t data
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        require_range(&buffer, start, end)
        data = <bytes_t>buffer.buf
        while position < end:
            size = check(data + position, end - position, base + position, &parts, verify)
            if size <= 0:
                break
            last_timestamp = get64(data + position + parts.store_time)
            if collect:
                collected.add(data + position, size, &parts, base + position, last_timestamp)
            position += size
            count += 1
    finally:
        PyBuffer_Release(&buffer)
    cdef object stop = STOPS[0] if size > 0 else STOPS[1] if size == 0 else STOPS[2]
    cdef object damage = DAMAGES[-size if size < 0 else 0]
    return Scan(position, stop, damage, count, last_timestamp, collected.close(),
                collected.keys.take())


# -- select ---------------------------------------------------------------------------------------

cdef extern from *:
    """
    #define prefetch(address) __builtin_prefetch((address), 1)
    #define prefetch_read(address) __builtin_prefetch((address), 0)
    """
    void prefetch(const void* address) noexcept nogil
    void prefetch_read(const void* address) noexcept nogil

cdef enum:
    LINE = 64  # bytes that a processor fetches at once
    SOON = 3 * ENTRY  # records of a queue lie apart: ask for them before they are needed
    SOON_BYTES_MAX = 1024  # the rest of a large one comes by itself


cdef inline void fetch_soon(bytes_t entry, bytes_t entries_end, bytes_t log, int64_t log_base,
                            Py_ssize_t log_end) noexcept nogil:
    """Have the record in the cache that an entry behind this one leads to."""
    if entries_end - entry < SOON + ENTRY:
        return
    cdef int64_t position = <int64_t>get64(entry + SOON) - log_base
    if not 0 <= position < log_end:
        return
    cdef int64_t size = min(<int64_t>get32(entry + SOON + 8), SOON_BYTES_MAX)
    cdef int64_t end = min(position + size, log_end)
    while position < end:
        prefetch_read(log + position)
        position += LINE


def select_records(entries, Py_ssize_t start, Py_ssize_t end, int64_t queue_offset, log,
                   int64_t log_base, Py_ssize_t log_end, wanted, Py_ssize_t count_max,
                   Py_ssize_t bytes_max):
    cdef Py_buffer index, records
    cdef Parts parts
    cdef Py_ssize_t at, size, count = 0, total = 0, number = 0, found
    cdef Py_ssize_t slice_at = -1, slice_end = -1
    cdef int64_t physical, position
    cdef bytes_t entry
    cdef bint outside = False
    cdef list slices = [], damaged = []
    PyObject_GetBuffer(entries, &index, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(log, &records, PyBUF_SIMPLE)
        try:
            require_range(&index, start, end)
            require_whole(end - start, ENTRY)
            require_range(&records, 0, log_end)
            at = start
            while at < end:
                entry = <bytes_t>index.buf + at
                at += ENTRY
                if wanted is None:  # Else most of them may not be looked at.
                    fetch_soon(entry, <bytes_t>index.buf + end, <bytes_t>records.buf, log_base,
                               log_end)
                elif <int64_t>get64(entry + 12) not in wanted:
                    number += 1
                    continue
                physical = get64(entry)
                size = <int32_t>get32(entry + 8)
                position = physical - log_base
                if size == HOLE_SIZE:
                    damaged.append((number, physical, DAMAGES[-BAD_MAGIC]))
                elif not 0 <= position < log_end:
                    outside = True
                    break
                elif count == count_max or (count and total + size > bytes_max):
                    break
                else:
                    found = check_entry(<bytes_t>records.buf + position, log_end - position,
                                        physical, size, queue_offset + number, &parts)
                    if found < 0:
                        damaged.append((number, physical, DAMAGES[-found]))
                    else:
                        if position == slice_end:
                            slice_end += size
                        else:
                            if slice_at >= 0:
                                slices.append(slice_at)
                                slices.append(slice_end - slice_at)
                            slice_at = position
                            slice_end = position + size
                        count += 1
                        total += size
                number += 1
        finally:
            PyBuffer_Release(&records)
    finally:
        PyBuffer_Release(&index)
    if slice_at >= 0:
        slices.append(slice_at)
        slices.append(slice_end - slice_at)
    return Selection(number, slices, count, total, damaged, outside)


def join_slices(log, list slices):
    cdef Py_buffer records
    cdef Py_ssize_t number, position, size, total = 0
    cdef bytes joined
    cdef char* target
    PyObject_GetBuffer(log, &records, PyBUF_SIMPLE)
    try:
        require_whole(len(slices), 2)
        for number in range(0, len(slices), 2):
            position, size = slices[number], slices[number + 1]
            if not 0 <= position <= records.len or not 0 <= size <= records.len - position:
                raise ValueError("a slice reaches beyond the log")
            total += size
        joined = PyBytes_FromStringAndSize(NULL, total)
        target = PyBytes_AS_STRING(joined)
        for number in range(0, len(slices), 2):
            position, size = slices[number], slices[number + 1]
            memcpy(target, <char*>records.buf + position, size)
            target += size
    finally:
        PyBuffer_Release(&records)
    return joined


cdef Py_ssize_t check_entry(bytes_t record, Py_ssize_t room, int64_t physical, Py_ssize_t size,
                            int64_t queue_offset, Parts* parts) noexcept nogil:
    cdef Py_ssize_t found = check(record, room, physical, parts, True)
    if found == 0:
        return BAD_MAGIC
    if found < 0:
        return found
    if found != size:
        return BAD_SIZE
    return size if <int64_t>get64(record + 20) == queue_offset else BAD_QUEUE_OFFSET


# -- index files ----------------------------------------------------------------------------------

cdef enum:
    AHEAD = 8 * KEY  # slots lie anywhere in megabytes: ask for them before they are needed


cdef int require_index(Py_buffer* buffer, int64_t slot_count, int64_t item_limit) except -1:
    if slot_count < 1 or INDEX_HEADER + slot_count * 4 + item_limit * INDEX_ITEM > buffer.len:
        raise ValueError(f"{slot_count} slots and {item_limit} items exceed the index file")
    return 0


def index_insert(view, int64_t slot_count, int64_t item_limit, bytes keys, Py_ssize_t start):
    cdef Py_buffer buffer
    cdef uint8_t* data
    cdef uint8_t* slot
    cdef uint8_t* item
    cdef bytes_t key
    cdef Py_ssize_t at = start, keys_size = PyBytes_GET_SIZE(keys)
    cdef int64_t begin_time, seconds, stored
    cdef uint32_t used, hashed
    cdef int32_t count, previous
    PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
    try:
        require_index(&buffer, slot_count, item_limit)
        require_whole(keys_size - start, KEY)
        if start < 0:
            raise ValueError("keys start at byte 0")
        data = <uint8_t*>buffer.buf
        begin_time = get64(data)
        used = get32(data + 32)
        count = max(<int32_t>get32(data + 36), 1)
        while at < keys_size and count < item_limit:
            key = <bytes_t>PyBytes_AS_STRING(keys) + at
            hashed = get32(key)
            if at + AHEAD < keys_size:
                prefetch(data + INDEX_HEADER + get32(key + AHEAD) % slot_count * 4)
            stored = get64(key + 12)
            slot = data + INDEX_HEADER + hashed % slot_count * 4
            previous = <int32_t>get32(slot)
            if not 0 < previous < count:
                previous = 0
                used += 1
            seconds = 0
            if begin_time > 0 and stored > begin_time:
                seconds = min((stored - begin_time) // 1000, 0x7FFFFFFF)
            item = data + INDEX_HEADER + slot_count * 4 + <int64_t>count * INDEX_ITEM
            memcpy(item, key, 12)
            put32(item + 12, <uint32_t>seconds)
            put32(item + 16, <uint32_t>previous)
            put32(slot, <uint32_t>count)
            if count == 1:
                begin_time = stored
                put64(data, stored)
                memcpy(data + 16, key + 4, 8)
            put64(data + 8, stored)
            memcpy(data + 24, key + 4, 8)
            count += 1
            at += KEY
        put32(data + 32, used)
        put32(data + 36, <uint32_t>count)
    finally:
        PyBuffer_Release(&buffer)
    return at


def index_lookup(view, int64_t slot_count, int64_t hashed, int64_t begin_ms, int64_t end_ms,
                 Py_ssize_t count_max):
    cdef Py_buffer buffer
    cdef bytes_t data
    cdef bytes_t item
    cdef int64_t begin_time, stored
    cdef int32_t count, number, previous
    cdef list found = []
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        data = <bytes_t>buffer.buf
        require_index(&buffer, slot_count, 0)
        if hashed < 0:
            raise ValueError("a key's hash is never negative")
        begin_time = get64(data)
        count = <int32_t>get32(data + 36)
        require_index(&buffer, slot_count, max(count, 0))
        number = <int32_t>get32(data + INDEX_HEADER + hashed % slot_count * 4)
        while 0 < number < count and len(found) < count_max:
            item = data + INDEX_HEADER + slot_count * 4 + <int64_t>number * INDEX_ITEM
            stored = begin_time + <int64_t><int32_t>get32(item + 12) * 1000
            if <int64_t>get32(item) == hashed and stored + 999 >= begin_ms and stored <= end_ms:
                found.append(<int64_t>get64(item + 4))
            previous = <int32_t>get32(item + 16)
            if previous >= number or stored + 999 < begin_ms:
                break
            number = previous
    finally:
        PyBuffer_Release(&buffer)
    return found


def index_count_below(view, int64_t slot_count, int64_t physical_limit, int64_t item_limit):
    cdef Py_buffer buffer
    cdef bytes_t item
    cdef int64_t physical, last = 0, number
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        require_index(&buffer, slot_count, item_limit)
        for number in range(1, item_limit):
            item = <bytes_t>buffer.buf + INDEX_HEADER + slot_count * 4 + number * INDEX_ITEM
            physical = get64(item + 4)
            if (get32(item) == 0 and physical == 0) or physical < last \
                    or physical >= physical_limit:
                return number
            last = physical
    finally:
        PyBuffer_Release(&buffer)
    return max(item_limit, 1)


def index_relink(view, int64_t slot_count, int64_t count):
    cdef Py_buffer buffer
    cdef uint8_t* data
    cdef uint8_t* item
    cdef uint8_t* slot
    cdef int64_t number
    cdef Py_ssize_t used = 0
    PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
    try:
        require_index(&buffer, slot_count, count)
        data = <uint8_t*>buffer.buf + INDEX_HEADER
        memset(data, 0, slot_count * 4)
        for number in range(1, count):
            item = data + slot_count * 4 + number * INDEX_ITEM
            slot = data + get32(item) % slot_count * 4
            if get32(slot) == 0:
                used += 1
            memcpy(item + 16, slot, 4)
            put32(slot, <uint32_t>number)
    finally:
        PyBuffer_Release(&buffer)
    return used


# -- batches as they are sent ---------------------------------------------------------------------

cdef enum:
    BATCHED_HEAD = 20


def decode_batch(bytes body, like):
    cdef bytes_t data = <bytes_t>PyBytes_AS_STRING(body)
    cdef Py_ssize_t at = 0, end, size = PyBytes_GET_SIZE(body), properties_at
    cdef int32_t content_size, flag
    cdef int properties_size
    cdef list messages = []
    topic, queue_id, sys_flag = like.topic, like.queue_id, like.sys_flag
    born, host = like.born_timestamp, like.born_host
    times, prepared = like.reconsume_times, like.prepared_transaction_offset
    while at < size:
        if len(messages) == BATCH_MESSAGES_MAX:
            raise MalformedRecord(f"a batch of over {BATCH_MESSAGES_MAX} messages")
        if at + BATCHED_HEAD > size:
            raise MalformedRecord(f"a batch ends in the middle of the message at byte {at}")
        end = at + <int32_t>get32(data + at)
        flag = <int32_t>get32(data + at + 12)
        content_size = <int32_t>get32(data + at + 16)
        properties_at = at + BATCHED_HEAD + <Py_ssize_t>content_size + 2
        if content_size < 0 or end > size or properties_at > end:
            raise MalformedRecord(f"the message at byte {at} of a batch does not fit into it")
        properties_size = data[properties_at - 2] << 8 | data[properties_at - 1]
        if properties_size > PROPERTIES_MAX or properties_at + properties_size != end:
            raise MalformedRecord(
                f"the lengths of the message at byte {at} of a batch don't add up"
            )
        messages.append(Message(
            topic, queue_id, piece(data, at + BATCHED_HEAD, properties_at - 2),
            piece(data, properties_at, end), flag, sys_flag, born, host, times, prepared,
        ))
        at = end
    if not messages:
        raise MalformedRecord("a batch without messages")
    return messages


def offset_ids(bytes store_host, placed):
    cdef Py_ssize_t host_digits = 2 * PyBytes_GET_SIZE(store_host), number, count = len(placed)
    cdef Py_ssize_t step = host_digits + 17
    if count == 0:
        return ""
    cdef bytes host = store_host.hex().upper().encode(), text = PyBytes_FromStringAndSize(
        NULL, step * count)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(text)
    cdef uint8_t[8] raw
    for number in range(count):
        memcpy(p, PyBytes_AS_STRING(host), host_digits)
        put64(raw, <uint64_t><int64_t>placed[number].physical_offset)
        hex_of(raw, 8, p + host_digits)
        p[step - 1] = b","
        p += step
    return (<const char*>PyBytes_AS_STRING(text))[:step * count - 1].decode("ascii")


# -- sends ----------------------------------------------------------------------------------------
#
# What is unusual in any way is left to the general way: nothing here refuses or repairs. So a parse
# that gives up needs no reason, and whoever doubts a case lets it fall through.

cdef enum:
    SEND_V2 = 310
    SEND_BATCH = 320
    ONEWAY = 2
    PREFIX = 8
    BINARY_HEAD = 21
    FLAGS_TAKEN = 0x701  # compressed, and how
    BATCHED_END = 2

cdef Py_ssize_t MESSAGES_MAX = BATCH_MESSAGES_MAX

# Bits of what a header has told, beside those of its one-letter fields.
cdef enum:
    SEEN_CODE = 1 << 26
    SEEN_FLAG = 1 << 27
    SEEN_OPAQUE = 1 << 28
    SEEN_FIELDS = 1 << 29
    # a group, b topic, e queue, f sysFlag, g born time, h flag
    SEEN_ALL = SEEN_CODE | SEEN_FIELDS | 0xF3


cdef struct Send:
    uint32_t seen
    int64_t code
    int64_t flag
    int64_t opaque
    int64_t queue_id
    int64_t sys_flag
    int64_t born_timestamp
    int64_t message_flag
    Text topic
    Text properties
    bint escaped  # the properties, by JSON
    bint batch


# Of each byte in a JSON string: 0 stands for itself, 1 ends it, 2 escapes, 3 is unusual.
cdef uint8_t[256] KINDS


cdef void make_kinds() noexcept:
    cdef int byte
    for byte in range(256):
        KINDS[byte] = 3 if byte < 32 or byte >= 127 else 0
    KINDS[34] = 1
    KINDS[92] = 2


make_kinds()
cdef uint8_t[PROPERTIES_MAX] UNESCAPED


cdef bint is_text(Text text, const char* other, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, other, size) == 0


cdef bint number_in(Text text, int64_t least, int64_t most, int64_t* value) noexcept nogil:
    """Read a plain whole number of that range."""
    cdef bytes_t p = text.at
    cdef bytes_t end = p + text.size
    cdef bint negative = text.size > 1 and p[0] == c"-"
    cdef int64_t found = 0
    p += negative
    if not 0 < end - p <= 18 or (p[0] == c"0" and text.size > 1):
        return 0
    while p < end:
        if not c"0" <= p[0] <= c"9":
            return 0
        found = found * 10 + p[0] - c"0"
        p += 1
    value[0] = -found if negative else found
    return least <= value[0] <= most


cdef bint int32_in(Text text, int64_t* value) noexcept nogil:
    return number_in(text, INT32_MIN, 0x7FFFFFFF, value)


cdef bytes_t scan_string(bytes_t p, bytes_t end, Text* text, bint* escaped) noexcept nogil:
    """The string that begins at `p`, behind its quote; what follows it, NULL if it is unusual."""
    cdef uint8_t kind
    text.at = p
    escaped[0] = 0
    while p < end:
        kind = KINDS[p[0]]
        if kind == 0:
            p += 1
        elif kind == 1:
            text.size = p - text.at
            return p + 1
        elif kind == 2:
            escaped[0] = 1
            p += 2
        else:
            break
    return NULL


cdef bytes_t scan_value(bytes_t p, bytes_t end, Text* text, bint* quoted,
                        bint* escaped) noexcept nogil:
    """A string, a whole number or a word of JSON; what follows it, NULL if it is something else."""
    cdef int64_t number
    quoted[0] = p < end and p[0] == c'"'
    if quoted[0]:
        return scan_string(p + 1, end, text, escaped)
    escaped[0] = 0
    text.at = p
    while p < end and p[0] != c"," and p[0] != c"}":
        p += 1
    text.size = p - text.at
    if (number_in(text[0], -(<int64_t>1 << 62), <int64_t>1 << 62, &number)
            or is_text(text[0], b"true", 4) or is_text(text[0], b"false", 5)
            or is_text(text[0], b"null", 4)):
        return p
    return NULL


cdef bint take_field(Send* send, Text name, Text value, bint quoted, bint escaped) noexcept nogil:
    """Note one of the request's own fields; 0 if it is unusual."""
    cdef uint8_t letter = name.at[0]
    cdef int64_t number
    if name.size != 1 or not c"a" <= letter <= c"m" or letter == c"k":
        return not escaped
    cdef uint32_t bit = <uint32_t>1 << (letter - c"a")
    if send.seen & bit or (escaped and letter != c"i"):
        return 0
    send.seen |= bit
    if letter == c"a" or letter == c"c":
        return quoted
    if letter == c"b":
        send.topic = value
        return quoted
    if letter == c"e":
        return int32_in(value, &send.queue_id)
    if letter == c"f":
        return int32_in(value, &send.sys_flag)
    if letter == c"g":
        return number_in(value, 0, <int64_t>1 << 62, &send.born_timestamp)
    if letter == c"h":
        return int32_in(value, &send.message_flag)
    if letter == c"i":
        send.properties = value
        send.escaped = escaped
        return quoted
    if letter == c"j":
        return is_text(value, b"0", 1)
    if letter == c"m":
        send.batch = is_text(value, b"true", 4)
        return send.batch or is_text(value, b"false", 5)
    return int32_in(value, &number)


cdef bint take_head(Send* send, Text name, Text value, bint quoted) noexcept nogil:
    """Note what a JSON header says beside its fields; 0 if it is unusual."""
    cdef uint32_t bit = 0
    cdef int64_t* number
    cdef int64_t version
    if is_text(name, b"code", 4):
        bit, number = SEEN_CODE, &send.code
    elif is_text(name, b"flag", 4):
        bit, number = SEEN_FLAG, &send.flag
    elif is_text(name, b"opaque", 6):
        bit, number = SEEN_OPAQUE, &send.opaque
    elif is_text(name, b"version", 7):
        number = &version
    else:
        # Language and such: a text, or nothing.
        return not is_text(name, b"extFields", 9) and (quoted or is_text(value, b"null", 4))
    if quoted or send.seen & bit:
        return 0
    send.seen |= bit
    return int32_in(value, number)


cdef bytes_t parse_fields(bytes_t p, bytes_t end, Send* send) noexcept nogil:
    """The fields of a JSON header, behind their brace; what follows, NULL if it is unusual."""
    cdef Text name, value
    cdef bint quoted, escaped
    if send.seen & SEEN_FIELDS:
        return NULL
    send.seen |= SEEN_FIELDS
    while p < end and p[0] == c'"':
        p = scan_string(p + 1, end, &name, &escaped)
        if p == NULL or escaped or name.size == 0 or p >= end or p[0] != c":":
            return NULL
        p = scan_value(p + 1, end, &value, &quoted, &escaped)
        if p == NULL or p >= end or not take_field(send, name, value, quoted, escaped):
            return NULL
        if p[0] == c"}":
            return p + 1
        if p[0] != c",":
            return NULL
        p += 1
    return NULL


cdef bint parse_json(bytes_t p, bytes_t end, Send* send) noexcept nogil:
    """A JSON header; 0 if it is unusual."""
    cdef Text name, value
    cdef bint quoted, escaped
    if p >= end or p[0] != c"{":
        return 0
    p += 1
    while p < end and p[0] == c'"':
        p = scan_string(p + 1, end, &name, &escaped)
        if p == NULL or escaped or p + 1 >= end or p[0] != c":":
            return 0
        if p[1] == c"{":
            if not is_text(name, b"extFields", 9):
                return 0
            p = parse_fields(p + 2, end, send)
        else:
            p = scan_value(p + 1, end, &value, &quoted, &escaped)
            if p != NULL and (escaped or not take_head(send, name, value, quoted)):
                return 0
        if p == NULL or p >= end:
            return 0
        if p[0] == c"}":
            return p + 1 == end
        if p[0] != c",":
            return 0
        p += 1
    return 0


cdef bint parse_binary(bytes_t p, bytes_t end, Send* send) noexcept nogil:
    """A binary header; 0 if it is unusual."""
    cdef Text name, value
    cdef bytes_t byte = p + BINARY_HEAD
    if end - p < BINARY_HEAD or get32(p + 13) != 0 or <Py_ssize_t>get32(p + 17) != end - byte:
        return 0
    send.seen |= SEEN_CODE | SEEN_FIELDS
    send.code = p[0] << 8 | p[1]
    send.opaque = <int32_t>get32(p + 5)
    send.flag = <int32_t>get32(p + 9)
    while byte < end:
        if byte[0] >= 127:
            return 0
        byte += 1
    p += BINARY_HEAD
    while p < end:
        if end - p < 6:
            return 0
        name = Text(p + 2, p[0] << 8 | p[1])
        if end - p < 6 + name.size:
            return 0
        p += 2 + name.size
        value = Text(p + 4, get32(p))
        if end - value.at < value.size:
            return 0
        p = value.at + value.size
        # An empty text is as good as none.
        if value.size and (name.size == 0 or not take_field(send, name, value, 1, 0)):
            return 0
    return 1


cdef int hex_digit(uint8_t byte) noexcept nogil:
    if c"0" <= byte <= c"9":
        return byte - c"0"
    byte |= 32
    return byte - c"a" + 10 if c"a" <= byte <= c"f" else -1


cdef bint unescape(Text* text) noexcept nogil:
    """Take the escapes out of properties; 0 if there is one beyond ASCII, or too much of all."""
    cdef bytes_t p = text.at
    cdef bytes_t end = p + text.size
    cdef uint8_t* to = &UNESCAPED[0]
    cdef uint8_t byte
    cdef int high, low
    while p < end:
        if to - &UNESCAPED[0] == PROPERTIES_MAX:
            return 0
        byte = p[0]
        p += 1
        if byte == c"\\":
            byte = p[0]
            p += 1
            if byte == c"u":
                if end - p < 4 or p[0] != c"0" or p[1] != c"0":
                    return 0
                high, low = hex_digit(p[2]), hex_digit(p[3])
                if not 0 <= high < 8 or low < 0:
                    return 0
                byte = high << 4 | low
                p += 4
            elif byte == c"n":
                byte = 10
            elif byte == c"t":
                byte = 9
            elif byte == c"r":
                byte = 13
            elif byte != c'"' and byte != c"\\" and byte != c"/":
                return 0
        to[0] = byte
        to += 1
    text.at = &UNESCAPED[0]
    text.size = to - &UNESCAPED[0]
    return 1


cdef bint is_usual_property(Text name, Text value, Text* unique) noexcept nogil:
    """Whether a message with it goes straight into its queue and is acknowledged as all are."""
    cdef Py_ssize_t at
    if name.size == 8 and memcmp(name.at, b"UNIQ_KEY", 8) == 0:
        if unique.size or value.size == 0:
            return 0
        unique[0] = value
        for at in range(value.size):
            if KINDS[value.at[at]]:
                return 0  # The answer would have to escape it.
        return 1
    if is_text(name, b"WAIT", 4):
        return is_text(value, b"true", 4)
    return not (is_text(name, b"DELAY", 5) or is_text(name, b"CLUSTER", 7)
                or is_text(name, b"TRAN_MSG", 8) or is_text(name, b"POP_CK", 6)
                or is_text(name, b"__CRC32#", 8)
                or (name.size > 6 and memcmp(name.at, b"TIMER_", 6) == 0))


cdef bint are_usual(Text properties, Text* unique) noexcept nogil:
    cdef bytes_t p = properties.at
    cdef bytes_t end = p + properties.size
    cdef bytes_t stop
    cdef bytes_t mark
    unique.size = 0
    while p < end:
        stop = <bytes_t>memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        mark = <bytes_t>memchr(p, 1, stop - p)
        if mark != NULL and not is_usual_property(Text(p, mark - p),
                                                  Text(mark + 1, stop - mark - 1), unique):
            return 0
        p = stop + 1
    return 1


cdef bint next_batched(bytes_t* at, bytes_t end, Draft* draft) noexcept nogil:
    """The message of a batch at `at`, which moves on; 0 if its lengths don't add up."""
    cdef bytes_t p = at[0]
    if end - p < BATCHED_HEAD + BATCHED_END:
        return 0
    cdef int64_t size = <int32_t>get32(p), body_size = <int32_t>get32(p + 16)
    if body_size < 0 or size > end - p or BATCHED_HEAD + body_size + BATCHED_END > size:
        return 0
    draft.flag = <int32_t>get32(p + 12)
    draft.body = Text(p + BATCHED_HEAD, body_size)
    at[0] = p + size
    p += BATCHED_HEAD + body_size
    draft.properties = Text(p + 2, p[0] << 8 | p[1])
    draft.closing = (draft.sealed and draft.properties.size > 0
                     and p[1 + draft.properties.size] != 2)
    return draft.properties.at + draft.properties.size == at[0]


cdef bint fits(Text body, Draft* draft, Py_ssize_t room) noexcept nogil:
    """Whether a batch has nothing unusual, and room for all of its records."""
    cdef bytes_t p = body.at
    cdef Py_ssize_t count = 0
    cdef Text unique
    while p < body.at + body.size:
        count += 1
        if count > MESSAGES_MAX or not next_batched(&p, body.at + body.size, draft):
            return 0
        if draft_properties(draft) > PROPERTIES_MAX or not are_usual(draft.properties, &unique):
            return 0
        room -= draft_size(draft)
        if room < 0:
            return 0
    return count > 0


cdef class Answers:
    """Frames of answers, made out of pieces that stay the same."""
    cdef Growing frames
    cdef tuple pieces
    cdef bytes host

    cdef int add(self, bint binary, bint batch, int64_t opaque, int64_t physical,
                 bytes_t sizes, Py_ssize_t count, int64_t queue_id, int64_t queue_offset,
                 Text unique) except -1:
        """`sizes` leads to the records, of which the first lies at `physical` of the log."""
        cdef tuple pieces = self.pieces[binary * 2 + batch]
        cdef Py_ssize_t start = self.frames.size, number, size
        cdef uint8_t* p
        self.frames.extend(PREFIX)
        self.put(pieces[0])
        if not binary:
            self.put_number(opaque)
        self.put(pieces[1])
        cdef Py_ssize_t id_size = PyBytes_GET_SIZE(self.host) + 16
        if binary:
            put32(self.frames.extend(4), <uint32_t>((id_size + 1) * count - 1))
        for number in range(count):
            if number:
                self.frames.extend(1)[0] = c","
            self.put(self.host)
            p = self.frames.extend(16)
            put_hex(p, physical)
            size = <int32_t>get32(sizes)
            physical += size
            sizes += size
        self.put(pieces[2])
        self.put_counted(queue_id, binary)
        self.put(pieces[3])
        self.put_counted(queue_offset, binary)
        self.put(pieces[4])
        if not batch:
            if binary:
                put32(self.frames.extend(4), <uint32_t>unique.size)
            put_text(self.frames.extend(unique.size), unique)
            self.put(pieces[5])
        p = self.frames.data + start
        size = self.frames.size - start
        put32(p, <uint32_t>(size - 4))
        put32(p + 4, <uint32_t>(size - PREFIX) | (<uint32_t>1 << 24 if binary else 0))
        if binary:
            put32(p + PREFIX + 5, <uint32_t>opaque)
            put32(p + PREFIX + 17, <uint32_t>(size - PREFIX - BINARY_HEAD))
        return 0

    cdef int put(self, bytes piece) except -1:
        put_text(self.frames.extend(PyBytes_GET_SIZE(piece)), text_in(piece))
        return 0

    cdef int put_counted(self, int64_t value, bint binary) except -1:
        """A number as text; in a binary header behind the text's size."""
        cdef Py_ssize_t at
        if binary:
            self.frames.extend(4)
        at = self.frames.size
        self.put_number(value)
        if binary:
            put32(self.frames.data + at - 4, <uint32_t>(self.frames.size - at))
        return 0

    cdef int put_number(self, int64_t value) except -1:
        cdef uint8_t[24] digits
        cdef int at = 24
        cdef uint64_t rest = <uint64_t>value
        if value < 0:
            self.frames.extend(1)[0] = c"-"
            rest = 0 - rest
        while True:
            at -= 1
            digits[at] = c"0" + rest % 10
            rest //= 10
            if rest == 0:
                break
        memcpy(self.frames.extend(24 - at), &digits[at], 24 - at)
        return 0


cdef void put_hex(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint8_t[8] raw
    put64(raw, <uint64_t>value)
    hex_of(raw, 8, p)


cdef Py_ssize_t power_above(Py_ssize_t size) noexcept:
    cdef Py_ssize_t power = 1
    while power < size:
        power *= 2
    return power


def append_sends(view, Py_ssize_t position, Py_ssize_t limit, int64_t base,
                 dict next_offsets, int64_t store_timestamp, bytes store_host, bint sealed,
                 bytes data, rules, bytes born_host, Py_ssize_t requests_max):
    cdef Py_buffer buffer
    cdef Py_ssize_t at = 0, end = PyBytes_GET_SIZE(data), frame_size, header_size
    cdef Py_ssize_t frame_max = rules.frame_bytes_max, body_max = rules.body_bytes_max
    cdef Py_ssize_t size, start, count, room
    cdef Py_ssize_t requests = 0, counted = 0, counted_from = position
    cdef Py_ssize_t[4] sends = [0, 0, 0, 0]
    cdef Py_ssize_t average, average_max = 0
    cdef int64_t queue_offset
    cdef bytes_t frame
    cdef bytes_t frame_end
    cdef uint8_t* log
    cdef Send send
    cdef Draft draft
    cdef Text unique
    cdef Text known_topic = Text(NULL, 0), nothing = Text(&SCRATCH[0], 0)
    cdef Text added = text_in(rules.added)
    cdef object topics = rules.topics, next_offset
    cdef tuple queues = (), queue
    cdef list puts = []
    cdef bint binary, is_batch
    cdef Answers answers = Answers()
    answers.frames = new_growing()
    answers.pieces = rules.answers
    answers.host = rules.host_digits
    draft.born_host = text_in(born_host)
    draft.store_host = text_in(store_host)
    draft.reconsume_times = 0
    draft.prepared = 0
    draft.sealed = sealed
    cdef uint32_t hosts = host_flags(host_size(born_host), host_size(store_host))
    PyObject_GetBuffer(view, &buffer, PyBUF_WRITABLE)
    try:
        if position < limit:  # Without room there may be nothing to write to.
            require_range(&buffer, position, limit)
        log = <uint8_t*>buffer.buf
        while requests < requests_max and end - at >= PREFIX:
            frame = <bytes_t>PyBytes_AS_STRING(data) + at
            frame_size = get32(frame)
            header_size = get32(frame + 4) & 0xFFFFFF
            binary = frame[4] == 1
            if (frame_size > frame_max or header_size > frame_size - 4
                    or frame_size > end - at - 4 or frame[4] > 1):
                break
            frame_end = frame + 4 + frame_size
            frame += PREFIX
            memset(&send, 0, sizeof(Send))
            if not (parse_binary(frame, frame + header_size, &send) if binary
                    else parse_json(frame, frame + header_size, &send)):
                break
            frame += header_size
            if (send.code != SEND_V2 and send.code != SEND_BATCH) or send.flag & ~ONEWAY:
                break
            if send.seen & SEEN_ALL != SEEN_ALL or send.sys_flag & ~<int64_t>FLAGS_TAKEN:
                break
            if frame_end - frame > body_max:
                break
            if not is_text(known_topic, <const char*>send.topic.at, send.topic.size):
                if counted:
                    puts.append((queue[0], counted, position - counted_from))
                    counted, counted_from = 0, position
                queues = topics[piece(send.topic.at, 0, send.topic.size)]
                known_topic = send.topic
            if not 0 <= send.queue_id < len(queues):
                break
            queue = queues[send.queue_id]
            next_offset = next_offsets.get(queue)
            if next_offset is None:
                break
            queue_offset = next_offset
            draft.queue_id = send.queue_id
            draft.flag = send.message_flag
            draft.sys_flag = <uint32_t>send.sys_flag | hosts
            draft.born_timestamp = send.born_timestamp
            draft.topic = send.topic
            draft.added = nothing
            is_batch = send.batch or send.code == SEND_BATCH
            if send.escaped and not unescape(&send.properties):
                break
            room = limit - position - FILE_END
            if is_batch:
                # All of them are looked at before the first is written: what is refused in the end
                # must not stand in the log, whole and for recovery to find.
                if not fits(Text(frame, frame_end - frame), &draft, room):
                    break
            else:
                draft.body = Text(frame, frame_end - frame)
                draft.properties = send.properties
                if not are_usual(draft.properties, &unique) or unique.size == 0:
                    break
                draft.closing = draft.properties.at[draft.properties.size - 1] != 2
                draft.added = added
                if draft_properties(&draft) > PROPERTIES_MAX or draft_size(&draft) > room:
                    break
            start, count = position, 0
            while frame < frame_end or count == 0:
                if is_batch:
                    next_batched(&frame, frame_end, &draft)
                else:
                    frame = frame_end
                size = draft_size(&draft)
                write_record(log + position, &draft, size, queue_offset + count, base + position,
                             store_timestamp)
                position += size
                count += 1
            next_offsets[queue] = queue_offset + count
            if not send.flag & ONEWAY:
                answers.add(binary, is_batch, send.opaque, base + start, log + start, count,
                            send.queue_id, queue_offset, unique)
            average = (position - start) // count
            if counted and not average_max // 2 < average <= average_max:
                puts.append((queue[0], counted, start - counted_from))
                counted, counted_from = 0, start
            if not counted:
                average_max = power_above(average)
            counted += count
            requests += 1
            sends[(2 if send.flag & ONEWAY else 0) + (send.code == SEND_BATCH)] += 1
            at += 4 + frame_size
    finally:
        PyBuffer_Release(&buffer)
    if counted:
        puts.append((queue[0], counted, position - counted_from))
    return Taken(at, position, (sends[0], sends[1], sends[2], sends[3]), puts,
                 answers.frames.take())


# -- batches of columns ---------------------------------------------------------------------------

cdef enum:
    BATCHED = 22
    ID_PROPERTY = 42
    ID_BEGINNING = 12


cdef struct Values:
    const int32_t* offsets
    bytes_t data
    Py_ssize_t count
    Py_ssize_t size


cdef int open_values(Py_buffer* offsets, Py_buffer* data, Values* values) except -1:
    require_numbers(offsets.len)
    values.offsets = <const int32_t*>offsets.buf
    values.data = <bytes_t>data.buf
    values.count = offsets.len // 4
    values.size = data.len
    return 0


cdef int require_numbers(Py_ssize_t size) except -1:
    if size % 4:
        raise ValueError(f"{size} bytes are no whole numbers of 32 bits")
    return 0


cdef Py_ssize_t value_size(Values* values, int32_t row) except -1:
    if not 0 <= row < values.count - 1:
        raise ValueError(f"there is no row {row}")
    cdef int32_t start = values.offsets[row], end = values.offsets[row + 1]
    if not 0 <= start <= end <= values.size:
        raise ValueError(f"row {row} is not inside of its buffer")
    return end - start


cdef Py_ssize_t rows_size(Values* bodies, Values* properties, const int32_t* rows,
                          Py_ssize_t count) except -1:
    """How many bytes it will take; all that can be wrong is found here."""
    cdef Py_ssize_t at, own, total = 0
    for at in range(count):
        own = value_size(properties, rows[at]) if properties.count else 0
        own += ID_PROPERTY
        if own > PROPERTIES_MAX:
            raise IllegalMessage(f"properties have {own} bytes")
        total += BATCHED + value_size(bodies, rows[at]) + own
    return total


cdef void put_rows(uint8_t* to, Values* bodies, Values* properties, const int32_t* rows,
                   Py_ssize_t count, const uint8_t* known, uint32_t number) noexcept nogil:
    """`known` is the id's property, without its last digits."""
    cdef Py_ssize_t at, body_size, own
    cdef int32_t row
    cdef uint8_t[4] digits
    for at in range(count):
        row = rows[at]
        body_size = bodies.offsets[row + 1] - bodies.offsets[row]
        own = properties.offsets[row + 1] - properties.offsets[row] if properties.count else 0
        put32(to, <uint32_t>(BATCHED + body_size + ID_PROPERTY + own))
        memset(to + 4, 0, 12)
        put32(to + 16, <uint32_t>body_size)
        memcpy(to + 20, bodies.data + bodies.offsets[row], body_size)
        to += 20 + body_size
        to[0] = <uint8_t>((ID_PROPERTY + own) >> 8)
        to[1] = <uint8_t>((ID_PROPERTY + own) & 0xFF)
        memcpy(to + 2, known, ID_PROPERTY)
        put32(digits, number + <uint32_t>row)
        hex_of(digits, 4, to + 2 + ID_PROPERTY - 9)
        to += 2 + ID_PROPERTY
        if own:
            memcpy(to, properties.data + properties.offsets[row], own)
            to += own


def encode_rows(body_offsets, bodies, property_offsets, properties, rows, bytes beginning,
                number):
    cdef Py_buffer buffers[5]
    cdef int opened = 0
    cdef Values body_values, property_values
    cdef Py_ssize_t count, size
    cdef uint32_t first = number & 0xFFFFFFFF
    cdef bytes known = b"UNIQ_KEY\x01" + beginning.hex().upper().encode() + b"00000000\x02"
    if len(beginning) != ID_BEGINNING:
        raise ValueError(f"a unique id begins with {ID_BEGINNING} bytes")
    try:
        for given in (body_offsets, bodies, property_offsets, properties, rows):
            PyObject_GetBuffer(given, &buffers[opened], PyBUF_SIMPLE)
            opened += 1
        open_values(&buffers[0], &buffers[1], &body_values)
        open_values(&buffers[2], &buffers[3], &property_values)
        require_numbers(buffers[4].len)
        count = buffers[4].len // 4
        size = rows_size(&body_values, &property_values, <const int32_t*>buffers[4].buf, count)
        encoded = PyBytes_FromStringAndSize(NULL, size)
        put_rows(<uint8_t*>PyBytes_AS_STRING(encoded), &body_values, &property_values,
                 <const int32_t*>buffers[4].buf, count, <const uint8_t*>PyBytes_AS_STRING(known),
                 first)
        return encoded
    finally:
        while opened:
            opened -= 1
            PyBuffer_Release(&buffers[opened])


def text_properties(bytes name, offsets, data):
    cdef Py_buffer buffers[2]
    cdef int opened = 0
    cdef Values texts
    cdef Py_ssize_t name_size = len(name), row, size, total = 0
    cdef bytes ends, made
    cdef int32_t* end
    cdef uint8_t* to
    try:
        for given in (offsets, data):
            PyObject_GetBuffer(given, &buffers[opened], PyBUF_SIMPLE)
            opened += 1
        open_values(&buffers[0], &buffers[1], &texts)
        for row in range(texts.count - 1):
            size = value_size(&texts, <int32_t>row)
            total += name_size + size + 2 if size else 0
        if total > 0x7FFFFFFF:
            raise ValueError(f"properties have {total} bytes, 32 bits have to count them")
        ends = PyBytes_FromStringAndSize(NULL, max(texts.count, 1) * 4)
        made = PyBytes_FromStringAndSize(NULL, total)
        end, to = <int32_t*>PyBytes_AS_STRING(ends), <uint8_t*>PyBytes_AS_STRING(made)
        end[0] = 0
        for row in range(texts.count - 1):
            size = texts.offsets[row + 1] - texts.offsets[row]
            if size:
                memcpy(to, PyBytes_AS_STRING(name), name_size)
                to[name_size] = 1
                if copy_marks(to + name_size + 1, texts.data + texts.offsets[row], size):
                    return None
                to[name_size + 1 + size] = 2
                to += name_size + size + 2
            end[row + 1] = <int32_t>(to - <uint8_t*>PyBytes_AS_STRING(made))
        return ends, made
    finally:
        while opened:
            opened -= 1
            PyBuffer_Release(&buffers[opened])


cdef bint copy_marks(uint8_t* to, bytes_t p, Py_ssize_t size) noexcept nogil:
    """Copy a text; whether it has a byte in it that separates properties."""
    cdef Py_ssize_t at
    cdef uint8_t found = 0
    for at in range(size):
        to[at] = p[at]
        found |= p[at] == 1 or p[at] == 2
    return found


# -- columns --------------------------------------------------------------------------------------

# The order of the fields below; what is wanted is a bit for each.
cdef enum:
    C_TOPIC
    C_MSG_ID
    C_KEYS
    C_TAGS
    C_QUEUE_ID
    C_QUEUE_OFFSET
    C_PHYSICAL
    C_BORN
    C_STORED
    C_RECONSUMED
    C_SYS_FLAG
    C_FLAG
    C_BODY
    C_PROPERTIES
    C_BORN_HOST
    C_STORE_HOST
    C_COUNT

cdef const char* HEX = b"0123456789ABCDEF"
cdef const char* NOTHING = b""
cdef dict WIDTHS = {name: array(code).itemsize for name, code in NUMBERS.items()}

cdef extern from *:
    """
    /* Copies a text in words; whether it is plain ASCII. Room for a word more is behind `to`. */
    static inline int copy_ascii(uint8_t *to, const uint8_t *from, Py_ssize_t size,
                                 const uint8_t *readable) {
        uint64_t seen = 0, word;
        Py_ssize_t at = 0;
        for (; at + 8 <= size; at += 8) {
            memcpy(&word, from + at, 8);
            memcpy(to + at, &word, 8);
            seen |= word;
        }
        if (at < size) {
            word = 0;
            if (readable - from >= at + 8) {
                memcpy(&word, from + at, 8);
                word &= (1ULL << 8 * (size - at)) - 1;
            } else {
                memcpy(&word, from + at, size - at);
            }
            memcpy(to + at, &word, 8);
            seen |= word;
        }
        return (seen & 0x8080808080808080ULL) == 0;
    }
    """
    bint copy_ascii(uint8_t* to, bytes_t value, Py_ssize_t size, bytes_t readable) noexcept nogil


cdef enum:
    WARM_BYTES_MAX = 64 << 20
    SMALLEST = 8  # Blocks have 2^8 bytes and more.

# Memory that was given back: blocks of 2^n bytes as a list, each of which begins with the next.
cdef uint8_t* WARM[64]
cdef Py_ssize_t warm_bytes = 0
memset(WARM, 0, sizeof(WARM))


cdef uint8_t* new_block(int power) except NULL:
    global warm_bytes
    cdef uint8_t* block = WARM[power]
    if block != NULL:
        memcpy(&WARM[power], block, sizeof(block))
        warm_bytes -= <Py_ssize_t>1 << power
        return block
    block = <uint8_t*>malloc(<Py_ssize_t>1 << power)
    if block == NULL:
        raise MemoryError
    return block


cdef void give_back(uint8_t* block, int power) noexcept:
    global warm_bytes
    if warm_bytes + (<Py_ssize_t>1 << power) > WARM_BYTES_MAX:
        free(block)
        return
    memcpy(block, &WARM[power], sizeof(block))
    WARM[power] = block
    warm_bytes += <Py_ssize_t>1 << power


@cython.final
cdef class Filling:
    """Bytes that grow, and are then read as a buffer without a copy.

    Its memory is used again: fresh pages of the system cost more than filling them.
    """
    cdef uint8_t* data
    cdef Py_ssize_t size, room
    cdef int power

    def __dealloc__(self):
        if self.data != NULL:
            give_back(self.data, self.power)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        # A buffer without an address, however short, is none to Arrow.
        cdef void* data = <void*>NOTHING if self.data == NULL else self.data
        PyBuffer_FillInfo(buffer, self, data, self.size, True, flags)

    def __len__(self):
        return self.size

    def __eq__(self, other):
        return bytes(self) == bytes(other)

    cdef inline int require(self, Py_ssize_t room) except -1:
        return self.grow(room) if room > self.room else 0

    cdef int grow(self, Py_ssize_t room) except -1:
        cdef int power = SMALLEST
        while <Py_ssize_t>1 << power < room:
            power += 1
        cdef uint8_t* block = new_block(power)
        if self.data != NULL:
            memcpy(block, self.data, self.room)
            give_back(self.data, self.power)
        self.data, self.room, self.power = block, <Py_ssize_t>1 << power, power
        return 0


cdef enum:
    SPARE = 8  # Texts are copied in whole words, the last of which may reach beyond the text.


@cython.final
cdef class Buffers:
    """One column as it grows. A number has a width; texts and binaries have ends.

    Room for rows is made by `make_room`, ahead of the rows. Bits of `valid` mean something from the
    first null on.
    """
    cdef Filling ends, data, valid
    cdef Py_ssize_t null_count, kept_size, kept_null_count
    cdef int width

    def __cinit__(self, int width):
        self.ends = Filling()
        self.data = Filling()
        self.valid = Filling()
        self.width = width

    cdef int make_room(self, Py_ssize_t rows) except -1:
        if self.width:
            return self.data.require(rows * self.width)
        self.valid.require((rows + 7) // 8)
        self.ends.require((rows + 1) * 4)
        (<int32_t*>self.ends.data)[0] = 0
        return 0

    cdef inline void put32(self, Py_ssize_t row, int32_t value) noexcept:
        (<int32_t*>self.data.data)[row] = value

    cdef inline void put64(self, Py_ssize_t row, int64_t value) noexcept:
        (<int64_t*>self.data.data)[row] = value

    cdef inline uint8_t* require(self, Py_ssize_t size) except NULL:
        if self.data.size + size > 0x7FFFFFFF:
            raise OverflowError("a column has over 2 GiB: take it earlier")
        self.data.require(self.data.size + size + SPARE)
        return self.data.data + self.data.size

    cdef inline void end_row(self, Py_ssize_t row, Py_ssize_t size) noexcept:
        self.data.size += size
        (<int32_t*>self.ends.data)[row + 1] = <int32_t>self.data.size

    cdef inline int put(self, Py_ssize_t row, bytes_t value, Py_ssize_t size) except -1:
        memcpy(self.require(size), value, size)
        self.end_row(row, size)
        return 0

    cdef inline int put_text(self, Py_ssize_t row, bytes_t value, Py_ssize_t size,
                             bytes_t readable) except -1:
        """A text; none (null) when it has no bytes. Up to `readable` there is memory to read."""
        if size == 0:
            return self.put_null(row)
        if copy_ascii(self.require(size), value, size, readable):
            self.end_row(row, size)
        else:
            self.put_cleaned(row, value, size)
        if self.null_count:
            self.valid.data[row >> 3] |= 1 << (row & 7)
        return 0

    cdef int put_cleaned(self, Py_ssize_t row, bytes_t value, Py_ssize_t size) except -1:
        cdef bytes clean = text_of(value, size).encode()
        return self.put(row, <bytes_t>PyBytes_AS_STRING(clean), PyBytes_GET_SIZE(clean))

    cdef int put_null(self, Py_ssize_t row) except -1:
        if self.null_count == 0:
            memset(self.valid.data, 0xFF, self.valid.room)
        self.null_count += 1
        self.valid.data[row >> 3] &= ~(1 << (row & 7))
        self.end_row(row, 0)
        return 0

    cdef void keep(self) noexcept:
        self.kept_size, self.kept_null_count = self.data.size, self.null_count

    cdef void go_back(self) noexcept:
        """To where it stood when `keep` was called."""
        self.data.size, self.null_count = self.kept_size, self.kept_null_count

    cdef object close(self, Py_ssize_t rows):
        self.make_room(rows)
        if self.width:
            self.data.size = rows * self.width
            return Column(b"", self.data, b"", 0)
        self.ends.size = (rows + 1) * 4
        if self.null_count and rows % 8:
            self.valid.data[rows // 8] &= (1 << rows % 8) - 1
        self.valid.size = (rows + 7) // 8 if self.null_count else 0
        return Column(self.ends, self.data, self.valid, self.null_count)


cdef enum:
    ROWS_FIRST = 64


@cython.final
cdef class ColumnBuilder:
    cdef readonly Py_ssize_t count
    cdef tuple names
    cdef object tags
    cdef list buffers
    cdef void* wanted[C_COUNT]
    cdef Py_ssize_t rows_room
    cdef bint looks_at_properties

    def __init__(self, names, tags=None):
        self.names = tuple(names)
        unknown = set(self.names) - set(COLUMNS)
        if unknown:
            raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
        self.tags = tags
        self.looks_at_properties = (
            tags is not None or not {"msgId", "keys", "tags"}.isdisjoint(self.names))
        self.begin()

    cdef int begin(self) except -1:
        cdef int field
        cdef Buffers buffers
        self.count = 0
        self.buffers = []
        memset(self.wanted, 0, sizeof(self.wanted))
        for field in range(C_COUNT):
            if COLUMNS[field] in self.names:
                buffers = Buffers(WIDTHS.get(COLUMNS[field], 0))
                self.buffers.append(buffers)
                self.wanted[field] = <void*>buffers
        return self.make_room(ROWS_FIRST)

    cdef int make_room(self, Py_ssize_t rows) except -1:
        cdef Buffers buffers
        for buffers in self.buffers:
            buffers.make_room(rows)
        self.rows_room = rows
        return 0

    @property
    def data_bytes(self):
        """Of texts and binaries together."""
        cdef Buffers buffers
        cdef Py_ssize_t total = 0
        for buffers in self.buffers:
            if not buffers.width:
                total += buffers.data.size
        return total

    def add(self, bytes data, int64_t start=0, int64_t end=0x7FFFFFFFFFFFFFFF):
        cdef bytes_t first = <bytes_t>PyBytes_AS_STRING(data)
        cdef Py_ssize_t at = 0, size = PyBytes_GET_SIZE(data), before = self.keep()
        cdef int64_t queue_offset
        cdef Parts parts
        try:
            while at < size:
                check_whole(first, at, size, &parts)
                queue_offset = get64(first + at + 20)
                if start <= queue_offset < end:
                    self.put(first + at, &parts, first + size)
                at += <int32_t>get32(first + at)
        except BaseException:
            self.go_back(before)
            raise
        return self.count - before

    def walk(self, view, Py_ssize_t start, Py_ssize_t end, int64_t base, choice=None):
        cdef Py_buffer buffer
        cdef Parts parts
        cdef Chosen chosen = Chosen(choice)
        cdef Py_ssize_t position = start, size = 1, before = self.keep()
        cdef bytes_t first
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        try:
            require_range(&buffer, start, end)
            first = <bytes_t>buffer.buf
            while position < end:
                size = check(first + position, end - position, base + position, &parts, True)
                if size <= 0:
                    break
                if chosen.has(first + position, &parts):
                    self.put(first + position, &parts, first + end)
                position += size
        except BaseException:
            self.go_back(before)
            raise
        finally:
            PyBuffer_Release(&buffer)
        return Walked(position, STOPS[0] if size > 0 else STOPS[1] if size == 0 else STOPS[2],
                      DAMAGES[-size if size < 0 else 0])

    def add_entries(self, bytes entries, int64_t queue_offset, log, int64_t base,
                    Py_ssize_t bytes_max):
        cdef Py_buffer records
        cdef Parts parts
        cdef bytes_t entry = <bytes_t>PyBytes_AS_STRING(entries)
        cdef bytes_t end = entry + PyBytes_GET_SIZE(entries)
        cdef bytes_t first
        cdef Py_ssize_t size, taken = 0, total = 0, before = self.keep()
        cdef int64_t position
        require_whole(end - entry, ENTRY)
        PyObject_GetBuffer(log, &records, PyBUF_SIMPLE)
        try:
            first = <bytes_t>records.buf
            while entry < end:
                fetch_soon(entry, end, first, base, records.len)
                position = <int64_t>get64(entry) - base
                size = <int32_t>get32(entry + 8)
                if not 0 <= position < records.len or (taken and total + size > bytes_max):
                    break
                if check_entry(first + position, records.len - position, base + position, size,
                               queue_offset + taken, &parts) < 0:
                    break
                self.put(first + position, &parts, first + records.len)
                total += size
                taken += 1
                entry += ENTRY
        except BaseException:
            self.go_back(before)
            raise
        finally:
            PyBuffer_Release(&records)
        return taken

    cdef Py_ssize_t keep(self) noexcept:
        cdef Buffers buffers
        for buffers in self.buffers:
            buffers.keep()
        return self.count

    cdef void go_back(self, Py_ssize_t count) noexcept:
        cdef Buffers buffers
        for buffers in self.buffers:
            buffers.go_back()
        self.count = count

    cdef bint has_tag(self, Text tags) except -1:
        return tags.size and PyBytes_FromStringAndSize(<char*>tags.at, tags.size) in self.tags

    cdef int put(self, bytes_t record, Parts* parts, bytes_t readable) except -1:
        """Add the record's fields to the wanted columns, unless its tag is not asked for."""
        cdef void** wanted = self.wanted
        cdef Py_ssize_t row = self.count
        cdef Known known
        if self.looks_at_properties:
            find_known(record + parts.properties, parts.properties_size, &known, readable)
            if self.tags is not None and not self.has_tag(known.tags):
                return 0
        if row == self.rows_room:
            self.make_room(2 * row)
        if wanted[C_TOPIC]:
            (<Buffers>wanted[C_TOPIC]).put_text(
                row, record + parts.topic, parts.topic_size, readable)
        if wanted[C_MSG_ID]:
            if known.unique.size:
                (<Buffers>wanted[C_MSG_ID]).put_text(
                    row, known.unique.at, known.unique.size, readable)
            else:
                put_offset_id(<Buffers>wanted[C_MSG_ID], row, record, parts)
        if wanted[C_KEYS]:
            (<Buffers>wanted[C_KEYS]).put_text(row, known.keys.at, known.keys.size, readable)
        if wanted[C_TAGS]:
            (<Buffers>wanted[C_TAGS]).put_text(row, known.tags.at, known.tags.size, readable)
        if wanted[C_QUEUE_ID]:
            (<Buffers>wanted[C_QUEUE_ID]).put32(row, <int32_t>get32(record + 12))
        if wanted[C_QUEUE_OFFSET]:
            (<Buffers>wanted[C_QUEUE_OFFSET]).put64(row, <int64_t>get64(record + 20))
        if wanted[C_PHYSICAL]:
            (<Buffers>wanted[C_PHYSICAL]).put64(row, <int64_t>get64(record + 28))
        if wanted[C_BORN]:
            (<Buffers>wanted[C_BORN]).put64(row, <int64_t>(get64(record + 40) * 1000))
        if wanted[C_STORED]:
            (<Buffers>wanted[C_STORED]).put64(
                row, <int64_t>(get64(record + parts.store_time) * 1000))
        if wanted[C_RECONSUMED]:
            (<Buffers>wanted[C_RECONSUMED]).put32(row, <int32_t>get32(record + parts.body - 16))
        if wanted[C_SYS_FLAG]:
            (<Buffers>wanted[C_SYS_FLAG]).put32(row, <int32_t>get32(record + 36))
        if wanted[C_FLAG]:
            (<Buffers>wanted[C_FLAG]).put32(row, <int32_t>get32(record + 16))
        if wanted[C_BODY]:
            (<Buffers>wanted[C_BODY]).put(row, record + parts.body, parts.body_size)
        if wanted[C_PROPERTIES]:
            (<Buffers>wanted[C_PROPERTIES]).put(
                row, record + parts.properties, parts.properties_size)
        if wanted[C_BORN_HOST]:
            (<Buffers>wanted[C_BORN_HOST]).put(row, record + 48, parts.store_time - 48)
        if wanted[C_STORE_HOST]:
            (<Buffers>wanted[C_STORE_HOST]).put(
                row, record + parts.store_time + 8, parts.body - 16 - parts.store_time - 8)
        self.count += 1
        return 0

    def take(self):
        cdef Buffers buffers, fresh
        cdef list full = self.buffers
        cdef dict columns = {}
        cdef Py_ssize_t rows = self.count
        self.begin()
        self.make_room(max(rows, ROWS_FIRST))
        order = [name for name in COLUMNS if name in self.names]
        for name, buffers, fresh in zip(order, full, self.buffers):
            columns[name] = buffers.close(rows)
            # What comes next is mostly of the same size.
            fresh.data.require(buffers.data.size)
        return {name: columns[name] for name in self.names}


@cython.final
cdef class Chosen:
    """A Choice as the walk asks for it."""
    cdef tuple topics, without_topics
    cdef object queue_ids
    cdef int64_t stored_from, stored_before
    cdef bint all_topics, all_queues, uncommitted

    def __cinit__(self, choice):
        choice = choice or Choice()
        self.all_topics, self.topics = choice.topics is None, tuple(choice.topics or ())
        self.without_topics = tuple(choice.without_topics)
        self.all_queues, self.queue_ids = choice.queue_ids is None, choice.queue_ids
        self.stored_from, self.stored_before = choice.stored_from, choice.stored_before
        self.uncommitted = choice.uncommitted

    cdef bint has(self, bytes_t record, Parts* parts) except -1:
        cdef uint32_t transaction = get32(record + 36) & TRANSACTION
        cdef int64_t stored = get64(record + parts.store_time)
        cdef bytes_t topic = record + parts.topic
        return (
            (transaction == 0 or transaction == COMMIT or self.uncommitted)
            and self.stored_from <= stored < self.stored_before
            and (self.all_queues or <int32_t>get32(record + 12) in self.queue_ids)
            and (self.all_topics or is_among(topic, parts.topic_size, self.topics))
            and not is_among(topic, parts.topic_size, self.without_topics)
        )


cdef bint is_among(bytes_t text, Py_ssize_t size, tuple texts) noexcept:
    cdef bytes one
    for one in texts:
        if PyBytes_GET_SIZE(one) == size and memcmp(PyBytes_AS_STRING(one), text, size) == 0:
            return True
    return False


cdef int check_whole(bytes_t data, Py_ssize_t at, Py_ssize_t end, Parts* parts) except -1:
    """The record is whole and its body undamaged, as `split_records` asks."""
    if end - at < FIXED_MIN:
        raise MalformedRecord(f"{end - at} stray bytes behind the last record")
    cdef bytes_t record = data + at
    cdef uint32_t magic = get32(record + 4)
    cdef Py_ssize_t size = <int32_t>get32(record)
    if (size < FIXED_MIN or size > end - at or (magic != V1 and magic != V2)
            or not find_parts(record, size, parts)):
        raise MalformedRecord(f"no record at byte {at} of {end}")
    if parts.body_size and crc31(record + parts.body, parts.body_size) != get32(record + 8):
        raise MalformedRecord(
            f"the body at queue offset {<int64_t>get64(record + 20)} has another checksum")
    return 0


cdef int put_offset_id(Buffers buffers, Py_ssize_t row, bytes_t record, Parts* parts) except -1:
    """The packed store host and the physical offset, in upper-case hex."""
    cdef uint8_t[56] text
    cdef Py_ssize_t host_size = parts.body - 16 - parts.store_time - 8
    hex_of(record + parts.store_time + 8, host_size, text)
    hex_of(record + 28, 8, text + 2 * host_size)
    return buffers.put_text(row, text, 2 * host_size + 16, text + 56)


cdef void hex_of(bytes_t p, Py_ssize_t size, uint8_t* text) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        text[2 * i] = HEX[p[i] >> 4]
        text[2 * i + 1] = HEX[p[i] & 15]


# -- properties as columns -----------------------------------------------------------------------

cdef enum:
    NAMES_MAX = 32  # Of one message: so many are compared with one another here.


def property_columns(offsets, data):
    cdef Py_buffer ends, all_bytes
    cdef Entries entries = Entries()
    cdef Py_ssize_t row, rows
    PyObject_GetBuffer(offsets, &ends, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(data, &all_bytes, PyBUF_SIMPLE)
        try:
            rows = ends.len // 4 - 1
            if not ascending(<int32_t*>ends.buf, rows, all_bytes.len):
                raise ValueError("offsets are not those of the data")
            entries.add_rows(<int32_t*>ends.buf, rows, <bytes_t>all_bytes.buf, all_bytes.len)
        finally:
            PyBuffer_Release(&all_bytes)
    finally:
        PyBuffer_Release(&ends)
    return entries.close(rows)


cdef bint ascending(int32_t* ends, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t row
    if rows < 0 or ends[0] < 0 or ends[rows] > size:
        return False
    for row in range(rows):
        if ends[row] > ends[row + 1]:
            return False
    return True


@cython.final
cdef class Entries:
    """Names and values of many messages' properties as they grow."""
    cdef Buffers names, values
    cdef Filling row_ends
    cdef Py_ssize_t count, room

    def __cinit__(self):
        self.names = Buffers(0)
        self.values = Buffers(0)
        self.row_ends = Filling()
        self.make_room(ROWS_FIRST)

    cdef int make_room(self, Py_ssize_t count) except -1:
        self.names.make_room(count)
        self.values.make_room(count)
        self.room = count
        return 0

    cdef int add_rows(self, int32_t* ends, Py_ssize_t rows, bytes_t data,
                      Py_ssize_t size) except -1:
        cdef Py_ssize_t row
        self.row_ends.require((rows + 1) * 4)
        (<int32_t*>self.row_ends.data)[0] = 0
        for row in range(rows):
            if not self.add_row(data + ends[row], data + ends[row + 1], data + size):
                self.add_unusual(data + ends[row], ends[row + 1] - ends[row])
            (<int32_t*>self.row_ends.data)[row + 1] = <int32_t>self.count
        return 0

    cdef bint add_row(self, bytes_t p, bytes_t end, bytes_t readable) except -1:
        """False, and nothing added, where names must be compared as texts, or are too many."""
        cdef Text[NAMES_MAX] seen
        cdef Text name
        cdef Py_ssize_t before = self.count, known = 0
        cdef bytes_t entry_end
        cdef bytes_t mark
        self.names.keep()
        self.values.keep()
        while p < end:
            entry_end = <bytes_t>memchr(p, 2, end - p)
            if entry_end == NULL:
                entry_end = end
            mark = <bytes_t>memchr(p, 1, entry_end - p)
            if mark != NULL and mark > p and mark + 1 < entry_end:
                name = Text(p, mark - p)
                if known == NAMES_MAX or is_one_of(name, seen, known) or not is_ascii(name):
                    self.names.go_back()
                    self.values.go_back()
                    self.count = before
                    return False
                seen[known] = name
                known += 1
                if not is_seal(name):
                    self.put(name, Text(mark + 1, entry_end - mark - 1), readable)
            p = entry_end + 1
        return True

    cdef int add_unusual(self, bytes_t p, Py_ssize_t size) except -1:
        cdef bytes name, value
        cdef Text one
        decoded = decode_properties(PyBytes_FromStringAndSize(<char*>p, size))
        decoded.pop(RECORD_CRC, None)
        for name, value in [(n.encode(), v.encode()) for n, v in decoded.items()]:
            one = Text(<bytes_t>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
            self.put(Text(<bytes_t>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)), one, NULL)
        return 0

    cdef int put(self, Text name, Text value, bytes_t readable) except -1:
        """Without `readable` neither text has readable memory behind it."""
        if self.count == self.room:
            self.make_room(2 * self.room)
        self.names.put_text(
            self.count, name.at, name.size, readable if readable else name.at + name.size)
        self.values.put_text(
            self.count, value.at, value.size, readable if readable else value.at + value.size)
        self.count += 1
        return 0

    cdef object close(self, Py_ssize_t rows):
        self.row_ends.size = (rows + 1) * 4
        return PropertyColumns(
            self.row_ends, self.names.close(self.count), self.values.close(self.count))


cdef bint is_one_of(Text name, Text* names, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if names[i].size == name.size and memcmp(names[i].at, name.at, name.size) == 0:
            return True
    return False


cdef bint is_ascii(Text text) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t seen = 0
    for i in range(text.size):
        seen |= text.at[i]
    return seen < 128


cdef bint is_seal(Text name) noexcept nogil:
    return name.size == SEAL_NAME - 1 and memcmp(name.at, SEAL_PREFIX, name.size) == 0
