"""The `tokenizers` library, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from latent_tokens.checks import one_line


def library() -> ModuleType:
    """Return the `tokenizers` package. Raise ValueError if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            "tokenizers: is not installed. "
            "Install it from a clone (pip install -e '.[text]'), or use tokenizer=bytes."
        ) from None
    return tokenizers


@contextmanager
def library_errors(message: str, fix: str) -> Iterator[None]:
    """Raise ValueError for anything that the library raises. A panic of Rust is a BaseException."""
    try:
        yield
    except (MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except ValueError:
        raise
    except BaseException as error:
        raise ValueError(f"{message} ({one_line(str(error) or type(error).__name__, 200)}). {fix}") from None
