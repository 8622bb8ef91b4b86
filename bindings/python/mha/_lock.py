"""The lock of a model, which one call uses at a time, and what becomes of it in a child of fork."""

from __future__ import annotations

import os
import threading
import time
import weakref

_PATIENCE = 5.0  # seconds that a fork waits for calls of other threads

_forking = threading.RLock()  # of the two below
_all: weakref.WeakSet[Lock] = weakref.WeakSet()
_held: list[Lock] = []  # by the fork that is under way


class Lock:
    """A lock that a fork takes as well, so that no call is cut in two: the child has the memory of the model, but not the thread
    that was changing it. A call that takes longer than a fork waits leaves a model that the child refuses to use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost = False
        with _forking:
            _all.add(self)

    def __enter__(self) -> None:
        if self._lost:
            raise RuntimeError("this model was in use by another thread when this process was forked; open it again")
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _before() -> None:
    _forking.acquire()
    end = time.monotonic() + _PATIENCE
    for lock in list(_all):
        if lock._lock.acquire(timeout=max(0.0, end - time.monotonic())):
            _held.append(lock)


def _in_parent() -> None:
    for lock in _held:
        lock._lock.release()
    _held.clear()
    _forking.release()


def _in_child() -> None:
    for lock in list(_all):
        lock._lost = lock._lost or lock not in _held
    _in_parent()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
