"""A clock that stands still until a test moves it."""


class ManualClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.current_ms = now_ms

    def now_ms(self) -> int:
        return self.current_ms

    def advance(self, milliseconds: int) -> None:
        self.current_ms += milliseconds
