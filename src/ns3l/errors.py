"""Errors that a user can mend: each says what was expected, what came and what to do."""


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
