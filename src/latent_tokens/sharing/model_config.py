"""The config of a model in transformers."""

from typing import Any

from transformers import PretrainedConfig


class LatentTokensConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """The config.json of a model directory.

    `vocab_size` counts MASK. Its id, `mask_token_id`, is the last. A run directory has neither, so they are
    those of its network.
    """

    model_type = "latent_tokens"

    def __init__(self, **entries: Any) -> None:
        if "model" in entries:
            mask_id = entries["model"]["vocab_size"]
            entries = {"vocab_size": mask_id + 1, "mask_token_id": mask_id, **entries}
        super().__init__(**entries)
