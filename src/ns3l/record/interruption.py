"""SIGTERM and SIGINT as a wish that the training loop grants between two steps."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption:
    """Inside `with Interruption() as stop`, a signal sets `stop.requested`; a second SIGINT raises KeyboardInterrupt.

    The loop reads `stop.requested` (the signal's number, or None), saves a checkpoint and ends. The handlers that were
    there before come back on leaving. Outside the main thread, where Python allows no handlers, nothing is caught.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._receive)
        outer = self._outer()
        self.requested = outer.requested if outer else None
        return self

    def _outer(self) -> "Interruption | None":
        """The interruption around this one, where there is one: a wish that it cannot grant by itself is shared."""
        found = getattr(self._before.get(signal.SIGINT), "__self__", None)
        return found if isinstance(found, Interruption) else None

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        outer = self._outer()
        if outer is not None and self.requested is not None:
            outer.requested = self.requested
        self._before.clear()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.requested is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = number

    @property
    def exit_code(self) -> int | None:
        """What a process that ends on this signal returns to its shell (130 for SIGINT, 143 for SIGTERM)."""
        return None if self.requested is None else 128 + self.requested
