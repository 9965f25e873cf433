"""The errors of the project: one base class, names that end in ``Error``."""


class SottoError(Exception):
    """Base class of every error that this project raises on purpose."""


class ParameterError(SottoError, ValueError):
    """A parameter is outside its allowed range; the message names it, its value and the range."""


class UnrelatedRungsError(ParameterError):
    """Two rungs are not related: the weaker channel is no degradation of the stronger one."""
