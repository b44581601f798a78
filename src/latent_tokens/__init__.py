"""Train, sample from and evaluate masked diffusion models, with latent tokens set at inference.

The public names are those of `__init__.pyi`. Each is imported on first use, so that `latent-tokens
--help` imports no torch.
"""

import lazy_loader

_resolve, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Return a public name, or the version of the package."""
    if name == "__version__":
        from latent_tokens.storage import package_version

        return package_version()
    return _resolve(name)
