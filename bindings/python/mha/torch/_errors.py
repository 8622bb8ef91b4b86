"""Errors that are caught both as what they are elsewhere in mha and as what PyTorch raises."""

from __future__ import annotations


class ArgumentError(ValueError, RuntimeError):
    """A value that is refused: a ValueError as elsewhere in mha, and a RuntimeError as PyTorch's functions raise it."""


class ArgumentTypeError(TypeError, RuntimeError):
    """The same for a type."""


class ShapeError(ArgumentError, AssertionError):
    """Shapes that do not fit, in a module: also an AssertionError, which PyTorch's module raises for some of them."""


_OF_PYTORCH = {ValueError: ArgumentError, TypeError: ArgumentTypeError}


def renamed(error: Exception, names: dict[str, str]) -> Exception:
    """The library's line with the name that the argument has in a function of PyTorch, as that function's error."""
    name, colon, rest = str(error).partition(":")
    kind = _OF_PYTORCH.get(type(error))
    return error if kind is None else kind(names.get(name, name) + colon + rest)
