"""Which offsets of a queue are marked, one bit each: ten million take 1.2 MB."""


class Marks:
    def __init__(self, low: int, high: int) -> None:
        """For the offsets of [low, high); none is marked."""
        self._low = low
        self._size = max(high - low, 0)
        self._bits = bytearray(-(-self._size // 8))
        self.count = 0

    def add(self, offset: int) -> bool:
        """Mark an offset; False when it is marked already, or none of these."""
        at = offset - self._low
        if not 0 <= at < self._size or offset in self:
            return False
        self._bits[at >> 3] |= 1 << (at & 7)
        self.count += 1
        return True

    def __contains__(self, offset: int) -> bool:
        at = offset - self._low
        return 0 <= at < self._size and bool(self._bits[at >> 3] & 1 << (at & 7))
