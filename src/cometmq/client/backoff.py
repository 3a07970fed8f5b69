"""How long to wait before the next try: longer each time, and never two clients at once."""

import random

_random = random.Random()  # noqa: S311 - spreads retries, guards nothing


class Backoff:
    """Waits that double up to a bound, each shortened by chance to at least its half."""

    def __init__(self, first_s: float = 0.1, longest_s: float = 10.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._tries = 0

    def next_s(self) -> float:
        full = min(self._longest_s, self._first_s * 2.0**self._tries)
        if full < self._longest_s:
            self._tries += 1
        return full * _random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._tries = 0
