"""The config of a model in transformers."""

from transformers import PretrainedConfig


class LatentTokensConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """The config.json of a model directory.

    `vocab_size` counts MASK. Its id, `mask_token_id`, is the last.
    """

    model_type = "latent_tokens"
