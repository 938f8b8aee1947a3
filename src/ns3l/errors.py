"""Errors that a user can mend: each says what was expected, what came and what to do. And what counts as a number"""

import math
from numbers import Integral, Real


class UserError(ValueError):
    """Something outside the library is not as it must be; the command line shows the message without a traceback."""


class DataError(UserError):
    """Data are missing, damaged or of the wrong form."""


class RecipeError(UserError):
    """A recipe, a method name or a setting cannot be understood."""


class RunError(UserError):
    """A run folder is in the way, damaged, in use, or holds another run."""


class DiskError(RunError):
    """A file could not be written: the disk is full, read-only or broken."""


class InUseError(RunError):
    """A run or study folder is being written by another process."""


def is_number(value: object) -> bool:
    """Whether it is a finite number; a truth value is none, nor is text or a tensor."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def is_whole(value: object) -> bool:
    """Whether it is a whole number by its type: 2, not 2.0."""
    return not isinstance(value, bool) and isinstance(value, Integral)
