"""A wrong call is refused in one line."""

import os
from contextlib import contextmanager

import pytest


@contextmanager
def refused(message):
    """With CHECK_SHAPES, beartype refuses a wrong type first."""
    kinds = (ValueError, TypeError) if os.environ.get("CHECK_SHAPES") else ValueError
    with pytest.raises(kinds) as error:
        yield
    if isinstance(error.value, ValueError):
        assert message in str(error.value)
        assert "\n" not in str(error.value)
