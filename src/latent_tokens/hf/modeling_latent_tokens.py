"""Our networks as models of transformers: loss, samples, loading and saving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack, cast, get_type_hints

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import MaskedLMOutput
from transformers.utils.generic import ModelOutput

from latent_tokens.checkpoints.files import check_fingerprint, check_real, find, read_tensor_file
from latent_tokens.checks import changed, refuse
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.decoding import Decoding, is_off_distribution
from latent_tokens.core.denoiser import token_logits
from latent_tokens.core.generated import Step
from latent_tokens.core.layout import Layout
from latent_tokens.evaluation.problems import decoding_with_policy
from latent_tokens.hf.collator import IGNORED_LABEL, weighted_cross_entropy
from latent_tokens.hf.directory import build, check_is_ours
from latent_tokens.hf.export import GENERATION, export_model, for_transformers, push_to_hub
from latent_tokens.hub import fetch
from latent_tokens.keywords import SamplingKeywords
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer, widened
from latent_tokens.tasks import Language, Text, described

HUB_OPTIONS = ("revision", "token", "cache_dir", "local_files_only", "force_download")
IGNORED_BY_GENERATE = {
    *("transformers_version", "bos_token_id", "eos_token_id", "pad_token_id", "use_cache"),
    "_from_model_config",
}
PREFIX = "net."  # of the names of weights in the class, which a directory does not have
FINGERPRINT_TOLERANCE = {torch.float32: 1e-2, torch.float16: 0.1, torch.bfloat16: 0.5}


@dataclass
class GeneratedOutput(ModelOutput):
    """The result of `generate`: the tokens with the record of their decoding."""

    sequences: Int[Tensor, "B L"]
    # Given positions, then the others in decoding order
    order: Int[Tensor, "B L"] | None = None
    forward_passes: int | None = None  # forward passes: the steps of the sample that took most
    tokens_processed: Int[Tensor, " B"] | None = None  # summed over steps
    # Decoded tokens per step of the sample
    tokens_per_forward: Float[Tensor, " B"] | None = None
    # Whether n leaves out masked tokens that each input had in training
    off_distribution: bool | None = None


class LatentTokensConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """The config.json of a model directory.

    `vocab_size` counts MASK. Its id, `mask_token_id`, is the last. A run directory has neither, so
    they are those of its network.
    """

    model_type = "latent_tokens"

    def __init__(self, **entries: Any) -> None:
        if "model" in entries:
            mask_id = entries["model"]["vocab_size"]
            entries = {"vocab_size": mask_id + 1, "mask_token_id": mask_id, **entries}
        super().__init__(**entries)


class LatentTokensForMaskedLM(PreTrainedModel):
    """A `latent_tokens.Transformer`, `self.net`, with its method, as a masked language model."""

    config_class = LatentTokensConfig
    base_model_prefix = PREFIX.rstrip(".")
    main_input_name = "input_ids"
    _no_split_modules = ["Block"]  # noqa: RUF012
    _tied_weights_keys = {}  # noqa: RUF012
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    # Settings of `generate`
    generation_config: GenerationConfig | None = None  # type: ignore[assignment]
    net: Transformer

    def __init__(self, config: LatentTokensConfig) -> None:
        super().__init__(config)
        self.net = build(config.to_dict())
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing: the network initializes itself, and `from_pretrained` refuses missing weights."""

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *model_args: Any, **kwargs: Any
    ) -> Self:
        """Return the model of a directory, a bundled model or a model on the hub, by default in float32.

        Raises:
            ValueError: its weights or its logits are not those that were saved.
        """
        # Find the directory, as transformers does not know the bundled models.
        with_loading_info = kwargs.pop("output_loading_info", False)
        options = {name: kwargs.pop(name) for name in HUB_OPTIONS if kwargs.get(name) is not None}
        subfolder = kwargs.pop("subfolder", "")
        folder = find(pretrained_model_name_or_path, partial(fetch, subfolder=subfolder, **options))
        folder = folder / subfolder
        check_is_ours(folder)

        # Transformers does not compare the tensors with their hash, and drops imaginary parts.
        weights = folder / "model.safetensors"
        if weights.is_file():
            check_real(read_tensor_file(weights), weights)

        # Open it with transformers, which reads the older name torch_dtype too.
        dtype = {} if "torch_dtype" in kwargs else {"dtype": torch.float32}
        arguments = {**dtype, **kwargs, "output_loading_info": True}
        model, info = cast(Any, super().from_pretrained)(folder, *model_args, **arguments)
        wrong = {kind: sorted(map(str, names)) for kind, names in info.items() if names}
        if wrong:
            problem = f"its weights are not those of its config ({wrong})"
            raise ValueError(f"{folder}: {problem}. Save the model again.")

        # Compare its logits with the config. Quantization and adapters of peft change them.
        tolerance = FINGERPRINT_TOLERANCE.get(model.dtype)
        has_adapter = getattr(model, "_hf_peft_config_loaded", False)
        if tolerance is not None and "quantization_config" not in kwargs and not has_adapter:
            stored = getattr(model.config, "fingerprint", None)
            check_fingerprint(model.net, stored, folder, tolerance)
        model.config.update(for_transformers(model.net))
        model.net.folder = folder.absolute()
        if (folder / GENERATION).is_file():
            model.generation_config = GenerationConfig.from_pretrained(folder)
        return cast(Self, (model, info) if with_loading_info else model)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load weights by the names of a model directory, or by those of this class, which begin with net.

        A Trainer loads the files of its checkpoints so, and leaves out what it does not know.
        """
        renamed = {
            PREFIX + name.removeprefix(PREFIX): weight for name, weight in state_dict.items()
        }
        return super().load_state_dict(renamed, strict, assign)

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        *,
        dtype: torch.dtype | None = None,
        license: str | None = None,
        push_to_hub: bool = False,
        **unused: Any,
    ) -> None:
        """Write a model directory with its card: all weights in one file of safetensors.

        Other keywords that tools pass have no meaning for this format.

        Raises:
            ValueError: `push_to_hub` is True.
        """
        if push_to_hub:
            problem = "save_pretrained does not upload"
            raise ValueError(f"push_to_hub=True: {problem}. Use model.push_to_hub('OWNER/NAME').")
        if not is_main_process:
            return
        net = self.net
        if state_dict is not None:
            weights = {name.removeprefix(PREFIX): weight for name, weight in state_dict.items()}
            net = deepcopy(net)
            net.load_state_dict(weights)
        own = self.generation_config
        export_model(net, save_directory, dtype=dtype, license=license, generation_config=own)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:  # type: ignore[override]
        """Upload the model as OWNER/NAME, as `latent_tokens.push_to_hub` does, and return its address."""
        settings = {"generation_config": self.generation_config, **options}
        return push_to_hub(self.net, repo_id, **settings)

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding of tokens and MASK."""
        return self.net.embedding

    def get_output_embeddings(self) -> nn.Module:
        """Return the head. Its weights are not tied to the embedding."""
        return self.net.head

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> MaskedLMOutput:
        """Return the logits (B, S, V + 1) of S slots: those with a token are clean, those with MASK masked.

        The input of the network is [clean | masked], each in the order of `input_ids`. A clean slot
        predicts its token with a shifted readout only. Slots that take no part have logits 0:
        padding, and slots beyond a window or a shifted readout's first masked slot.

        Args:
            input_ids: tokens and MASK (B, S).
            position_ids: the positions (S) or (B, S) of the slots, by default 0, 1, 2 and so on.
                Permute `input_ids` and positions together to choose the order of masked slots.
                Leave out masked slots to have fewer latent tokens.
            attention_mask: 0 at padding (B, S). Or the attention pattern, Bool (B, 1, S, S), of an
                input that is arranged already, as `DiffusionCollator` does.
            labels: tokens (B, S), or -100. With labels, `loss` is their mean cross-entropy in nats,
                or 0 if there are none.
            weights: weight of each label (B, S). With weights, `loss` is the weighted sum instead.

        Raises:
            ValueError: positions are out of range or occur twice, or weights have no labels.
        """
        net = self.net
        if weights is not None and labels is None:
            # A Trainer that smooths labels keeps them, and its loss has no weights.
            refuse(
                "weights",
                "there are no labels",
                "labels, and label_smoothing_factor=0 of a Trainer",
            )
        if attention_mask is not None and attention_mask.dim() == 4:
            logits = net(input_ids, position_ids, attention_mask[:, 0])
            predicted = torch.ones_like(input_ids, dtype=torch.bool)
        else:
            logits, predicted = arranged_logits(net, input_ids, position_ids, attention_mask)
        logits = token_logits(net, widened(logits, net.vocab_size + 1))
        if labels is None:
            return MaskedLMOutput(logits=logits)
        if weights is not None:
            return MaskedLMOutput(
                loss=weighted_cross_entropy(logits, labels, weights), logits=logits
            )
        scored = predicted & (labels != IGNORED_LABEL)
        total = F.cross_entropy(logits[scored].float(), labels[scored].long(), reduction="sum")
        return MaskedLMOutput(loss=total / scored.sum().clamp(min=1), logits=logits)

    def generate(
        self,
        input_ids: Tensor,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: Tensor | None = None,
        on_step: Callable[[Step], None] | None = None,
        **settings: Unpack[SamplingKeywords],
    ) -> GeneratedOutput:
        """Return `input_ids` (B, L) with every MASK decoded, as `latent_tokens.generate` does.

        A setting that is left out has the default of `latent-tokens sample`. Row b has the random
        numbers of (seed, b).

        Args:
            input_ids: tokens and MASK (B, L).
            generation_config: settings, which `settings` replace. None is `model.generation_config`,
                which generation_config.json in a model's directory sets.
            attention_mask: 0 at padding (B, L), at the end of a row.
            on_step: called after each step with its `Step`.
            **settings: latent_policy and any option of `latent-tokens sample`: latents, candidates,
                order, confidence, tokens_per_step, threshold, entropy_bound, factor, frechet_bound,
                temperature, top_p, t_max, t_min, seed, refresh, confidence_noise, drafts,
                remask_below, remask_every, extra_passes and off_distribution.

        Raises:
            ValueError: a setting is out of range or not supported by the method.

        Example:
            >>> model.generate(input_ids, latents=4, candidates=8).forward_passes
            36
        """
        stored = self.generation_config if generation_config is None else generation_config
        given: dict[str, Any] = {} if stored is None else settings_of_generation(stored)
        config = changed(SamplingConfig(), {**given, **settings})
        net, task = self.net, known_task(self.config, self.net.folder)
        decoding = decoding_with_policy(net, net.method, task, config)
        return decode_masked(net, input_ids, attention_mask, decoding, config.seed, on_step)


def settings_of_generation(config: GenerationConfig) -> dict[str, Any]:
    """Return the settings of sampling that a generation config of transformers sets.

    Its names are ours, and those of transformers with a meaning here: `do_sample`, and the entropy
    bound of `sampler_config`, which takes all candidates.

    Raises:
        ValueError: it sets what has no meaning here, such as the number of beams.
    """
    given = {name: value for name, value in config.to_diff_dict().items() if value is not None}
    known = get_type_hints(SamplingKeywords).keys()
    settings = {name: given.pop(name) for name in known & given.keys()}
    if given.pop("do_sample", True) is False:
        settings["temperature"] = 0.0
    sampler = given.pop("sampler_config", {})
    if "entropy_bound" in sampler:
        settings = {"candidates": "all", **settings, "entropy_bound": sampler["entropy_bound"]}
    for name in given.keys() - IGNORED_BY_GENERATE:
        use = "latents, candidates, order, temperature or top_p"
        refuse(f"{name}={given[name]} in the generation config", "it has no meaning here", use)
    return settings


AutoConfig.register(LatentTokensConfig.model_type, LatentTokensConfig, exist_ok=True)
AutoModel.register(LatentTokensConfig, LatentTokensForMaskedLM, exist_ok=True)
AutoModelForMaskedLM.register(LatentTokensConfig, LatentTokensForMaskedLM, exist_ok=True)


def known_task(config: PretrainedConfig, folder: Path | None) -> Language:
    """Return the task that a model has learned, or None for a task of another package."""
    entries = getattr(config, "task", None) or {}
    with suppress(ValueError):
        return Text() if entries.get("name") == Text.name else described(entries, folder)
    return cast(Language, None)


def attended_slots(
    net: Transformer, input_ids: Tensor, positions: Tensor | None, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the positions of slots, by default 0, 1, 2 and so on, and which slots (B, S) are not padding.

    Raise ValueError if the ids are no batch, or positions are out of range or occur twice.
    """
    if input_ids.dim() != 2:
        raise ValueError(
            f"input_ids {tuple(input_ids.shape)}: must be (B, L). Use input_ids[None]."
        )
    attended = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    attended = attended.bool()
    if positions is None:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
    ordered = positions.expand_as(attended).masked_fill(~attended, -1).sort(dim=1).values
    is_twice = (ordered.diff(dim=1) == 0) & (ordered[:, 1:] >= 0)
    is_outside = attended & ((positions < 0) | (positions >= net.max_length))
    if is_twice.any() or is_outside.any():
        allowed = f"must be different and from 0 to {net.max_length - 1}"
        raise ValueError(f"position_ids: {allowed}. Cut the input.")
    return positions.long(), attended


def arranged_logits(
    net: Transformer, input_ids: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the logits (B, S, V) of slots in any order, and which of them (B, S) predict a token."""
    method = net.method
    positions, attended = attended_slots(net, input_ids, position_ids, attention_mask)
    tokens, layout, slot_of = arrange(net, input_ids.long(), positions, attended)

    # The logits of the arranged slots, in the order of the input.
    logits = method.logits(net, tokens, layout).masked_fill(~layout.shown[..., None], 0)
    predicted = layout.shown if method.readout == "shifted" else layout.shown & ~layout.clean
    return logits.gather(1, slot_of[..., None].expand_as(logits)), predicted.gather(1, slot_of)


def arrange(
    net: Transformer, input_ids: Tensor, positions: Tensor, attended: Tensor
) -> tuple[Tensor, Layout, Tensor]:
    """Arrange slots as the method expects them: [clean | masked | padding], each in the order of the input.

    Returns:
        The tokens of the sequences (B, L), the layout of the input, and the slot (B, S) of the
        arranged input for each slot of `input_ids`.

    Raises:
        ValueError: the clean tokens are not a prefix, and the readout is shifted.
    """
    method = net.method
    positions = positions.expand_as(input_ids).masked_fill(~attended, 0)
    is_masked = attended & (input_ids == net.mask_id)
    slots = (2 * ~attended + is_masked).argsort(dim=1, stable=True)  # (B, S)

    # The slots that take part. A shifted readout reads no further than the first masked one.
    num_clean = (attended & ~is_masked).sum(1)
    num_visible = method.max_visible(is_masked.sum(1))
    if method.readout == "shifted":
        num_visible = num_visible.clamp(max=1)
    layout = Layout(positions.gather(1, slots), num_clean, num_clean + num_visible)
    if method.readout == "shifted" and (layout.positions != layout.slots)[layout.shown].any():
        problem = "its tokens are not a prefix, and a shifted readout only continues one"
        raise ValueError(f"input_ids: {problem}. Use scdm or mdm to infill.")

    # The tokens by position.
    rows = torch.arange(len(input_ids), device=input_ids.device)[:, None].expand_as(input_ids)
    tokens = torch.full((len(input_ids), net.max_length), net.mask_id, device=input_ids.device)
    tokens[rows[attended], positions[attended]] = input_ids[attended]
    return tokens, layout, slots.argsort(1)


def decode_masked(
    net: Transformer,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    decoding: Decoding,
    seed: int,
    on_step: Callable[[Step], None] | None,
) -> GeneratedOutput:
    """Return `input_ids` (B, L) with every MASK decoded. Padding, at the end of rows, stays as it is."""
    _, attended = attended_slots(net, input_ids, None, attention_mask)
    if (attended[:, 1:] & ~attended[:, :-1]).any():
        raise ValueError("attention_mask: padding must be at the end of a row")
    input_ids = input_ids.long()
    known = (input_ids != net.mask_id) | ~attended  # padding is not decoded
    lengths = attended.sum(1)
    result = generate(
        net, net.method, input_ids, known, decoding, seed, lengths=lengths, on_step=on_step
    )

    return GeneratedOutput(
        sequences=torch.where(attended, result.tokens, input_ids),
        order=result.order,
        forward_passes=result.forward_passes,
        tokens_processed=result.tokens_processed,
        tokens_per_forward=(~known).sum(1) / result.passes.clamp(min=1),
        off_distribution=is_off_distribution(net.method, decoding.latents),
    )
