"""The address of the repository. `scripts/set_owner.py` writes its owner, once there is one."""

from __future__ import annotations

OWNER = ""  # on GitHub


def addresses(owner: str = OWNER) -> dict[str, str]:
    """Return the addresses of the repository, its web site and its notebooks, or {} without an owner."""
    if not owner:
        return {}
    return {
        "repository": f"https://github.com/{owner}/latent-tokens",
        "pages": f"https://{owner}.github.io/latent-tokens",
        "colab": f"https://colab.research.google.com/github/{owner}/latent-tokens",
    }
