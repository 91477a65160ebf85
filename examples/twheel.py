# SPDX-License-Identifier: MIT
"""Timers of libtwheel for asyncio: a million of them, on one descriptor.

    wheel = Wheel()
    timer = wheel.arm(30.0, connection.close)   # seconds
    timer.arm(30.0)                             # push it later: hardly ever a system call
    timer.cancel()

Without a loop call wheel.dispatch() when wheel.fileno() is readable.
"""
import asyncio
import ctypes
import os

_lib = ctypes.CDLL(os.environ.get("LIBTWHEEL", "libtwheel.so.1"))


class _Timer(ctypes.Structure):
    _fields_ = [
        ("fn", ctypes.c_void_p), ("deadline_ns", ctypes.c_uint64),
        ("slack_ns", ctypes.c_uint64), ("report_by_ns", ctypes.c_uint64),
        ("slot", ctypes.c_uint32), ("key", ctypes.c_uint32),
        ("interval_ns", ctypes.c_uint64), ("count", ctypes.c_uint32),
        ("misfire", ctypes.c_uint8), ("resv", ctypes.c_uint8 * 11),
    ]


_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
_timer = ctypes.POINTER(_Timer)
_lib.twheel_open.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p]
_lib.twheel_close.argtypes = [ctypes.c_void_p]
_lib.twheel_close.restype = None
_lib.twheel_fd.argtypes = [ctypes.c_void_p]
_lib.twheel_arm.argtypes = [ctypes.c_void_p, _timer, ctypes.c_uint64, _Function]
_lib.twheel_every.argtypes = [ctypes.c_void_p, _timer, ctypes.c_uint64, _Function]
_lib.twheel_cancel.argtypes = [ctypes.c_void_p, _timer]
_lib.twheel_dispatch.argtypes = [ctypes.c_void_p, ctypes.c_int]


def _check(ret):
    if ret < 0:
        raise OSError(-ret, os.strerror(-ret))
    return ret


class Timer:
    """What Wheel.arm() and Wheel.every() return."""

    def __init__(self, wheel, callback, args):
        self._wheel, self._callback, self._args = wheel, callback, args
        self._timer = _Timer()

    def arm(self, delay):
        """Call once, after so many seconds. If it is armed this moves it."""
        self._arm(_lib.twheel_arm, delay)

    def every(self, interval):
        """Call again and again, every so many seconds."""
        self._arm(_lib.twheel_every, interval)

    def cancel(self):
        """Whether it was armed."""
        self._wheel._armed.pop(ctypes.addressof(self._timer), None)
        return bool(_check(_lib.twheel_cancel(self._wheel._w, ctypes.byref(self._timer))))

    def is_armed(self):
        return self._timer.slot != 0

    def _arm(self, how, seconds):
        ns = round(seconds * 1e9)
        _check(how(self._wheel._w, ctypes.byref(self._timer), ns, self._wheel._fired))
        # Python must not free what the library knows of.
        self._wheel._armed[ctypes.addressof(self._timer)] = self


class Wheel:
    """A wheel of timers, in the running loop of asyncio if there is one."""

    def __init__(self):
        self._w = ctypes.c_void_p()
        self._armed = {}
        self._errors = []
        self._fired = _Function(self._on_fired)
        self._loop = None
        _check(_lib.twheel_open(ctypes.byref(self._w), None))
        try:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self.fileno(), self.dispatch)
        except RuntimeError:
            pass

    def fileno(self):
        return _lib.twheel_fd(self._w)

    def arm(self, delay, callback, *args):
        timer = Timer(self, callback, args)
        timer.arm(delay)
        return timer

    def every(self, interval, callback, *args):
        timer = Timer(self, callback, args)
        timer.every(interval)
        return timer

    def dispatch(self):
        """Call what is due. An exception of a callback comes out of here afterwards."""
        _check(_lib.twheel_dispatch(self._w, 0))
        if self._errors:
            errors, self._errors = self._errors, []
            raise errors[0]

    def close(self):
        if self._w:
            if self._loop:
                self._loop.remove_reader(self.fileno())
            _lib.twheel_close(self._w)
            self._w = ctypes.c_void_p()
            self._armed.clear()

    def _on_fired(self, _w, address, _missed):
        timer = self._armed[address]
        if not timer.is_armed():
            del self._armed[address]
        try:
            timer._callback(*timer._args)
        except Exception as error:  # it cannot pass through C
            self._errors.append(error)
