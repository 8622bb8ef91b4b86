"""How many threads calls use."""

from __future__ import annotations

from mha import _mha

_threads = 0


def get_num_threads() -> int:
    """The number of threads that a call uses; 0 stands for the number of processors.

    >>> import mha
    >>> mha.get_num_threads()
    0
    """
    return _threads


def set_num_threads(threads: int) -> None:
    """Sets the number of threads of later calls, in all threads; 0: the number of processors that the process may use.

    Results have the same bits for any number. Calls of :mod:`mha.torch` use ``torch.get_num_threads()`` instead.

    >>> import mha
    >>> mha.set_num_threads(2)
    >>> mha.get_num_threads()
    2
    >>> mha.set_num_threads(0)
    """
    global _threads
    if not hasattr(threads, "__index__"):
        raise TypeError(f"threads: must be a whole number, not {type(threads)}")
    if not 0 <= threads <= 1024:
        raise ValueError(f"threads: {threads} is not from 0 to 1024")
    _threads = int(threads)
    _mha.set_threads(_threads)
