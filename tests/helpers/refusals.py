"""A wrong call is refused in one line."""

import os
from contextlib import contextmanager

import pytest


@contextmanager
def refused(*parts):
    """Expect a ValueError of one line with these parts. With CHECK_SHAPES, beartype may refuse first."""
    kinds = (ValueError, TypeError) if os.environ.get("CHECK_SHAPES") else ValueError
    with pytest.raises(kinds) as error:
        yield
    if isinstance(error.value, ValueError):
        assert "\n" not in str(error.value)
        assert all(part in str(error.value) for part in parts), str(error.value)
