"""Signals become a wish; handlers come back."""

import os
import signal
import threading

import pytest

from ns3l.record import Interruption


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_a_wish_and_handlers_come_back(number, code):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Interruption() as stop:
        assert stop.requested is None and stop.exit_code is None
        os.kill(os.getpid(), number)
        assert stop.requested == number and stop.exit_code == code
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_second_sigint_interrupts_at_once_and_a_second_sigterm_does_not():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interruption() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_nothing_is_caught_outside_the_main_thread():
    seen = []

    def work():
        with Interruption() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]


def test_a_wish_passes_between_nested_interruptions():
    with Interruption() as outer:
        with Interruption() as inner:
            os.kill(os.getpid(), signal.SIGTERM)
            assert inner.requested == signal.SIGTERM and outer.requested is None
        assert outer.requested == signal.SIGTERM
        with Interruption() as later:
            assert later.requested == signal.SIGTERM
    with Interruption() as fresh:
        assert fresh.requested is None
