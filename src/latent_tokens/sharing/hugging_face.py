"""Our networks as models of transformers: loss, generation, loading and saving."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import torch
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
from transformers.utils.hub import convert_file_size_to_int

from latent_tokens.checkpoints.directory import build, check_is_ours
from latent_tokens.checkpoints.files import check_can_build, check_fingerprint, find, read_tensor_file
from latent_tokens.checkpoints.hub import fetch
from latent_tokens.checkpoints.hugging_face import is_adapted
from latent_tokens.checkpoints.layouts import read_json
from latent_tokens.core.denoiser import exclude_mask_token
from latent_tokens.network.transformer import Transformer
from latent_tokens.sharing.collator import weighted_cross_entropy
from latent_tokens.sharing.generation import (
    GeneratedOutput,
    GenerationSettings,
    LatentTokensGenerationConfig,
    StepCallback,
    check_settings,
    decode_masked,
    known_task,
    seed_from,
)
from latent_tokens.sharing.hub_methods import for_transformers, push_to_hub, save_pretrained
from latent_tokens.sharing.model_inputs import arranged_logits, attended_slots, mean_nats


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


HUB_OPTIONS = ("revision", "token", "cache_dir", "local_files_only", "force_download")


PREFIX = "net."


NEW_SPELLING = {r"^position_embedding\.": "place."}  # a weight of version 1.0: the name that it has here


class LatentTokensForMaskedLM(PreTrainedModel):
    """A `latent_tokens.Transformer`, `self.net`, with its method, as a masked language model."""

    config_class = LatentTokensConfig
    base_model_prefix = PREFIX.rstrip(".")
    main_input_name = "input_ids"
    _no_split_modules = ["Block"]  # noqa: RUF012
    _tied_weights_keys = {}  # noqa: RUF012
    supports_gradient_checkpointing = True

    def __init__(self, config: LatentTokensConfig) -> None:
        super().__init__(config)
        self.net = build(config.to_dict())
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing: the network initializes itself, and `from_pretrained` refuses missing weights."""

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *model_args: Any, **kwargs: Any
    ) -> Any:
        """Return the model of a directory, a bundled model or a model on the hub, by default in float32.

        Raises:
            ValueError: its weights or its logits are not those that were saved.
        """
        with_loading_info = kwargs.pop("output_loading_info", False)
        options = {name: kwargs.pop(name) for name in HUB_OPTIONS if kwargs.get(name) is not None}
        subfolder = kwargs.pop("subfolder", "")
        fetch_model = partial(fetch, subfolder=subfolder, **options)
        folder = find(pretrained_model_name_or_path, fetch_model) / subfolder
        check_directory(folder)
        has_dtype = "torch_dtype" in kwargs  # the older name of dtype, which transformers still reads
        dtype = {} if has_dtype else {"dtype": torch.float32}
        arguments = {"key_mapping": NEW_SPELLING, **dtype, **kwargs, "output_loading_info": True}
        model, loading_info = cast(Any, super().from_pretrained)(folder, *model_args, **arguments)
        check_loaded(model, folder, loading_info, kwargs.get("quantization_config") is not None)
        model.config.update(for_transformers(model.net))
        model.net.folder = folder.absolute()
        return (model, loading_info) if with_loading_info else model

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load weights by the names of a model directory, or by those of this class, which begin with net.

        A Trainer loads the files of its checkpoints so, and leaves out what it does not know.
        """
        names = {name: name if name.startswith(PREFIX) else PREFIX + name for name in state_dict}
        renamed = {names[name]: weight for name, weight in state_dict.items()}
        return super().load_state_dict(renamed, strict, assign)

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        dtype: torch.dtype | None = None,
        push_to_hub: bool = False,
        **options: Unpack[SavingOptions],
    ) -> None:
        """Write a model directory with its card, as `net.save_pretrained` does.

        With push_to_hub=True upload it as `repo_id`, by default the name of the directory.

        Raises:
            ValueError: a keyword of transformers has a value that this format does not support.
        """
        check_saving(self.net, options)
        net = self.net
        if state_dict is not None:
            net = deepcopy(net)
            net.load_state_dict({name.removeprefix(PREFIX): weight for name, weight in state_dict.items()})
        if is_main_process:
            save_pretrained(net, save_directory, dtype=dtype)
        if is_main_process and push_to_hub:
            self.push_to_hub(options.get("repo_id") or Path(save_directory).name, **for_hub(options))

    def push_to_hub(  # type: ignore[override]
        self,
        repo_id: str,
        *,
        commit_message: str = "A model of latent-tokens",
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        create_pr: bool = False,
    ) -> str:
        """Upload the model as OWNER/NAME to the hub in one commit, and return its address."""
        return push_to_hub(
            self.net,
            repo_id,
            private=private,
            token=token,
            branch=revision,
            create_pr=create_pr,
            commit_message=commit_message,
        )

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding of tokens and MASK."""
        return self.net.embedding

    def resize_token_embeddings(  # type: ignore[override]
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Module:
        """Return the embedding. Raise ValueError for another number of tokens, as MASK must be the last."""
        if pad_to_multiple_of is not None or new_num_tokens not in (None, self.config.vocab_size):
            size = f"new_num_tokens={new_num_tokens}, pad_to_multiple_of={pad_to_multiple_of}"
            raise ValueError(f"{size}: must be {self.config.vocab_size}, as MASK is the last token")
        return self.get_input_embeddings()

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

        The input of the network is [clean | masked], each in the order of `input_ids`. Logits of clean
        slots predict their token with a shifted readout, and have no meaning otherwise. Slots that take no
        part have logits 0: padding, and slots beyond a window or a shifted readout's first masked slot.

        Args:
            input_ids: tokens and MASK (B, S).
            position_ids: the positions (S) or (B, S) of the slots, by default 0, 1, 2 and so on. Permute
                `input_ids` and positions together to choose the order of masked slots. Leave out masked slots
                to have fewer latent tokens.
            attention_mask: 0 at padding (B, S). Or the attention pattern, Bool (B, 1, S, S), of an input that
                is arranged already, as `DiffusionCollator` does.
            labels: tokens (B, S), or -100. With labels, `loss` is their mean cross-entropy in nats, or 0 if
                there are none.
            weights: weight of each label (B, S). With weights, `loss` is the weighted sum instead.

        Raises:
            ValueError: an input has the wrong shape or is out of range.
        """
        net = self.net
        if attention_mask is not None and attention_mask.dim() == 4:
            logits = exclude_mask_token(net.mask_id, net(input_ids, position_ids, attention_mask[:, 0]))
            predicted = torch.ones_like(input_ids, dtype=torch.bool)
        else:
            logits, predicted = arranged_logits(net, input_ids, position_ids, attention_mask)
        if labels is None:
            return MaskedLMOutput(logits=logits)
        if weights is None:
            loss = mean_nats(logits, labels, predicted, net.vocab_size)
        else:
            loss = weighted_cross_entropy(logits, labels, weights)
        return MaskedLMOutput(loss=loss, logits=logits)

    def generate(
        self,
        input_ids: Tensor,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: Tensor | None = None,
        callback_on_step_end: StepCallback | None = None,
        output_trace: bool = False,
        return_dict_in_generate: bool = True,
        generator: torch.Generator | None = None,
        **settings: Unpack[GenerationSettings],
    ) -> GeneratedOutput | Tensor:
        """Return `input_ids` (B, L) with every MASK decoded, as `latent_tokens.generate` does.

        A setting of `GenerationSettings` that is None has the value of `generation_config`, or the
        default of `latent-tokens sample`. Row b has the random numbers of (seed, b), counted after each row
        is repeated `num_return_sequences` times.

        Args:
            input_ids: tokens and MASK (B, L).
            generation_config: settings. Settings given to the call take precedence.
            attention_mask: 0 at padding (B, L), at the end of a row.
            callback_on_step_end: called after each step as callback(model, step, t, {"sequences": ...}).
                t is the largest fraction of masked tokens in a row before the step.
            output_trace: return every step.
            return_dict_in_generate: return the sequences with a record of their decoding as attributes.
            generator: draws the seed.
            settings: those of `GenerationSettings`.

        Raises:
            ValueError: a setting is unknown, out of range or not supported by the method.
        """
        check_settings(settings)
        config = LatentTokensGenerationConfig(**settings).with_defaults(generation_config)
        decoding = config.decoding(self.net.method, known_task(self.config))
        seed = seed_from(config.settings["seed"], generator)
        repeats = config.settings["num_return_sequences"] or 1
        attended = attended_slots(input_ids, attention_mask).repeat_interleave(repeats, dim=0)
        repeated_ids = input_ids.repeat_interleave(repeats, dim=0)
        output = decode_masked(
            self, repeated_ids, attended, decoding, seed, callback_on_step_end, output_trace
        )
        return output if return_dict_in_generate else output.sequences


AutoConfig.register(LatentTokensConfig.model_type, LatentTokensConfig, exist_ok=True)


AutoModel.register(LatentTokensConfig, LatentTokensForMaskedLM, exist_ok=True)


AutoModelForMaskedLM.register(LatentTokensConfig, LatentTokensForMaskedLM, exist_ok=True)


FINGERPRINT_TOLERANCE = {torch.float32: 1e-2, torch.float16: 0.1, torch.bfloat16: 0.5}


MAX_NAMES = 200  # characters


def check_directory(folder: Path) -> None:
    """Raise ValueError if a directory has another network than `Transformer`, or corrupt weights."""
    check_is_ours(folder)
    if (folder / "config.json").is_file():
        config = read_json(folder / "config.json")
        check_can_build(config, folder)
        if is_adapted(config):
            problem = "its network is a model of transformers"
            raise ValueError(f"{folder}: {problem}. Open it with load({str(folder)!r}).")
    if (folder / "model.safetensors").is_file():  # checks its hash; transformers reads other files too
        read_tensor_file(folder / "model.safetensors")


def check_loaded(
    model: PreTrainedModel,
    folder: Path,
    loading_info: Mapping[str, Collection[str]],
    is_quantized: bool,
) -> None:
    """Raise ValueError if weights are missing or unexpected, or have other logits."""
    wrong = {kind: sorted(map(str, names)) for kind, names in loading_info.items() if names}
    if wrong:
        raise ValueError(
            f"{folder}: its weights are not those of its config ({str(wrong)[:MAX_NAMES]}). "
            "Save the model again."
        )
    tolerance = FINGERPRINT_TOLERANCE.get(model.dtype)
    has_adapter = getattr(model, "_hf_peft_config_loaded", False)  # transformers loads one of peft, too
    if tolerance is not None and not is_quantized and not has_adapter:
        net = cast(Transformer, model.net)
        check_fingerprint(net, getattr(model.config, "fingerprint", None), folder, tolerance)


class HubOptions(TypedDict, total=False):
    """Those that `push_to_hub` takes too."""

    commit_message: str
    private: bool | None
    token: str | bool | None
    revision: str | None
    create_pr: bool


class SavingOptions(HubOptions, total=False):
    """The arguments of `save_pretrained` that transformers, accelerate and peft pass beside its own."""

    # Used.
    max_shard_size: int | str  # the weights are one file, refused if it is larger
    repo_id: str  # the name on the hub, with push_to_hub=True

    # Refused, but for one value.
    safe_serialization: bool
    variant: str | None
    distributed_checkpoint: bool

    # Without meaning: the file has one format, and adapters are not saved here.
    save_function: Callable[..., object]
    save_original_format: bool
    save_peft_format: bool


REQUIRED = {  # the value that is allowed, and why
    "safe_serialization": (True, "the weights are always in safetensors"),
    "variant": (None, "the weights are always in model.safetensors"),
    "distributed_checkpoint": (False, "one process writes the weights"),
}


def check_saving(net: nn.Module, options: SavingOptions) -> None:
    """Raise TypeError for an unknown keyword, and ValueError for a value that the directory cannot have."""
    unknown = sorted(set(options) - set(SavingOptions.__annotations__))
    if unknown:
        raise TypeError(f"{unknown[0]}: no argument of save_pretrained")
    for name, (value, reason) in REQUIRED.items():
        if options.get(name, value) != value:
            raise ValueError(f"{name}={options.get(name)}: is not supported, as {reason}. Leave it out.")
    num_bytes = sum(weight.numel() * weight.element_size() for weight in net.parameters())
    largest = options.get("max_shard_size")
    if largest is not None and num_bytes > convert_file_size_to_int(largest):
        raise ValueError(
            f"max_shard_size={largest}: the weights are one file of {num_bytes:,} bytes. Set it higher."
        )


def for_hub(options: SavingOptions) -> HubOptions:
    """Return the keywords that `push_to_hub` takes."""
    return cast(
        HubOptions, {name: value for name, value in options.items() if name in HubOptions.__annotations__}
    )
