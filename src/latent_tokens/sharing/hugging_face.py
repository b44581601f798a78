"""A model as transformers knows models: AutoModelForMaskedLM opens the folders that sharing.py writes, and `generate` has the names of that world.

It is a thin layer: the network, its folders and its samples are ours, unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput
from transformers.utils.generic import ModelOutput

from latent_tokens.checkpoints.hub import fetch
from latent_tokens.checkpoints.pretrained import build, check_fingerprint, find
from latent_tokens.checkpoints.tensor_files import read_tensor_file
from latent_tokens.checks import check_int
from latent_tokens.configs import EvalConfig, OrderName
from latent_tokens.core.decoding import Decoding, Step, check_decoding
from latent_tokens.core.layout import Layout
from latent_tokens.core.methods import exclude_mask_token
from latent_tokens.core.partition import equal_parts
from latent_tokens.evaluation.evaluate import decoding_for
from latent_tokens.network.fast import generate
from latent_tokens.sharing.hub_methods import for_transformers, push_to_hub, save_pretrained
from latent_tokens.tasks import TASKS, Language, Text

IGNORED = -100  # labels that are not scored, as everywhere in transformers
OF_THE_HUB = ("revision", "token", "cache_dir", "local_files_only", "force_download")
OF_THE_LIBRARY = (
    "transformers_version",
    "return_dict_in_generate",
)  # what a GenerationConfig may say beside settings
LIKE = {
    torch.float32: 1e-2,
    torch.float16: 0.1,
    torch.bfloat16: 0.5,
}  # how far the fingerprint of the same weights may be, by precision
PREFIX = "net."
NEW_SPELLING = {r"^position_embedding\.": "place."}  # a weight of version 1.0: the name that it has here


class LatentTokensConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """The config.json of a model folder: `model`, `method` and `task` as this package writes them, beside what transformers asks of any model.

    `vocab_size` counts MASK, whose id `mask_token_id` is the last.
    """

    model_type = "latent_tokens"


@dataclass
class GeneratedOutput(ModelOutput):
    """What `generate` gives back, for B rows of L positions."""

    sequences: Tensor | None = None  # Int[B, L]
    order: Tensor | None = None  # Int[B, L]: known positions first, then the others as they were decoded
    nfe: int | None = None  # forward passes: steps of the row that took most
    tokens_processed: Tensor | None = None  # Int[B]: slots shown, summed over steps
    tokens_per_forward: Tensor | None = None  # Float[B]: tokens decoded by the steps that the row took
    trace: list[dict[str, Any]] | None = (
        None  # where asked for: a row's step each, with its positions, tokens, candidates and latents
    )


@dataclass(frozen=True)
class Settings:
    """How to sample, by the names of transformers and diffusers. None is what `latent-tokens sample` does by default."""

    num_latent_tokens: int | Literal["all"] | None = None
    candidates: int | Literal["all", "growing"] | None = None
    order: OrderName | None = None
    temperature: float | None = None
    top_p: float | None = None
    tokens_per_step: int | None = None
    steps: int | None = None
    seed: int | None = None
    do_sample: bool | None = None


class LatentTokensForMaskedLM(PreTrainedModel):
    """A `latent_tokens.Transformer`, `self.net`, with its method, as a masked language model."""

    config_class = LatentTokensConfig
    base_model_prefix = PREFIX.rstrip(".")
    main_input_name = "input_ids"
    _no_split_modules = ["Block"]  # noqa: RUF012
    _tied_weights_keys = {}  # noqa: RUF012

    def __init__(self, config: LatentTokensConfig) -> None:
        super().__init__(config)
        self.net = build(config.to_dict())
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """Leaves a new network as its class drew it; what a folder lacks is refused by `from_pretrained`, never drawn."""

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *model_args: Any, **kwargs: Any
    ) -> Any:
        """The model of a folder, of a name that comes along, or of a name on the hub; in float32 where no `dtype` is asked for.

        Takes what transformers takes. Raises ValueError where a weight is missing, left over or of another shape, or where the logits
        are not those that it was saved with.
        """
        informs = kwargs.pop("output_loading_info", False)
        options = {name: kwargs.pop(name) for name in OF_THE_HUB if kwargs.get(name) is not None}
        folder = find(pretrained_model_name_or_path, partial(fetch, **options))
        load = cast(Any, super().from_pretrained)
        arguments = {"dtype": torch.float32, "key_mapping": NEW_SPELLING, **kwargs}
        model, found = load(folder, *model_args, output_loading_info=True, **arguments)
        wrong = {kind: sorted(map(str, names)) for kind, names in found.items() if names}
        if wrong:
            raise ValueError(
                f"{folder}: its weights are not those of its config ({str(wrong)[:200]}); save the model again"
            )
        if (folder / "model.safetensors").is_file():  # checks its hash; transformers reads other files too
            read_tensor_file(folder / "model.safetensors")
        if model.dtype in LIKE and kwargs.get("quantization_config") is None:
            check_fingerprint(
                model.net, getattr(model.config, "fingerprint", None), folder, LIKE[model.dtype]
            )
        model.config.update(for_transformers(model.net))
        model.net.folder = folder.absolute()
        return (model, found) if informs else model

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Writes a model folder with its card, as `net.save_pretrained` does: `latent_tokens.from_pretrained` opens it, too."""
        net = self.net
        if state_dict is not None:
            net = deepcopy(net)
            net.load_state_dict({name.removeprefix(PREFIX): weight for name, weight in state_dict.items()})
        if is_main_process:
            save_pretrained(net, save_directory, dtype=dtype)

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
        """Saves the model as OWNER/NAME on the hub, in one commit; its address."""
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
        """The embedding of tokens and MASK."""
        return self.net.embedding

    def get_output_embeddings(self) -> nn.Module:
        """The head, whose weights are its own."""
        return self.net.head

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> MaskedLMOutput:
        """The logits (B, S, V + 1) of S slots, as the method sees them: those that hold a token are clean, those that hold MASK masked.

        The network is shown [clean | masked], each in the order of the input, under the method's own attention and window; logits come
        back in the order of the input. `position_ids` (B, S) says where in the sequence each slot stands, by default in its place:
        so input and positions may be permuted together, to choose the order among masked slots, and masked slots left out, to show
        fewer latents. Where `attention_mask` (B, S) is 0 there is padding. What clean slots say means nothing, but with a shifted readout,
        where each slot is the prediction of its token from those before it. Slots that take no part, padding, what is past a window, what is behind
        the first masked slot of a shifted readout, have all logits 0, and MASK has minus infinity everywhere.
        `loss` is the mean cross-entropy in nats of the `labels` (B, S), -100 for none, at slots whose logits mean something; 0 without any.
        Raises ValueError where an input is of another shape or out of range.
        """
        net, method = self.net, self.net.method
        shown = (
            torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        )
        places = (
            torch.arange(input_ids.shape[1], device=input_ids.device)
            if position_ids is None
            else position_ids
        )
        check_inputs(net, input_ids, places, shown)
        places, masked = places.expand_as(input_ids).masked_fill(~shown, 0), input_ids == net.mask_id
        slots = (2 * ~shown + (masked & shown)).argsort(dim=1, stable=True)  # of the input, as they are shown
        clean, room = (shown & ~masked).sum(1), method.max_visible((shown & masked).sum(1))
        layout = Layout(
            places.gather(1, slots),
            clean,
            clean + (room.clamp(max=1) if method.readout == "shifted" else room),
        )
        row = torch.arange(len(input_ids), device=input_ids.device)[:, None].expand_as(input_ids)
        tokens = torch.full((len(input_ids), net.max_length), net.mask_id, device=input_ids.device)
        tokens[row[shown], places[shown]] = input_ids[shown]
        if method.readout == "shifted" and (layout.positions != layout.slots)[layout.shown].any():
            raise ValueError(
                "input_ids: its tokens are no prefix, and a shifted readout only continues one; use scdm or mdm to infill"
            )
        logits = method.logits(net, tokens, layout)
        logits = exclude_mask_token(net.mask_id, logits.masked_fill(~layout.shown[..., None], 0))
        back = slots.argsort(1)
        logits = logits.gather(1, back[..., None].expand_as(logits))
        if labels is None:
            return MaskedLMOutput(logits=logits)
        read = (layout.shown if method.readout == "shifted" else layout.shown & ~layout.clean).gather(1, back)
        return MaskedLMOutput(loss=mean_nats(logits, labels, read, net.vocab_size), logits=logits)

    def generate(
        self,
        input_ids: Tensor,
        generation_config: GenerationConfig | None = None,
        *,
        num_latent_tokens: int | Literal["all"] | None = None,
        candidates: int | Literal["all", "growing"] | None = None,
        order: OrderName | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        tokens_per_step: int | None = None,
        steps: int | None = None,
        seed: int | None = None,
        do_sample: bool | None = None,
        attention_mask: Tensor | None = None,
        callback_on_step_end: Callable[[Any, int, float, dict[str, Any]], Any] | None = None,
        output_trace: bool = False,
        return_dict_in_generate: bool = True,
    ) -> GeneratedOutput | Tensor:
        """`input_ids` (B, L) with every MASK filled in: the samples of `latent_tokens.generate` with the same seed, 0 by default.

        A setting that is not given is that of `generation_config`, where it has one of that name, else what `latent-tokens sample` does by
        default: the order top_prob (uniform for text, left_to_right where the method is), 8 candidates, the method's own latents, one
        token a step. `steps` is the number of steps instead of `tokens_per_step`; do_sample=False is temperature 0. Row b draws from the
        stream (seed, b). Padding, where `attention_mask` is 0, stands at the end of a row and stays.
        `callback_on_step_end(model, step, t, {"sequences": ...})` is called after each step, t being the share that was masked before
        it, from 1 down, of the row with the most; what it gives back is not used. With `output_trace` every step is kept.
        Raises ValueError for a setting that decoding does not have, or that does not suit the method.
        """
        given = locals()
        asked = settings_of({field.name: given[field.name] for field in fields(Settings)}, generation_config)
        decoding = self.decoding(asked)
        shown = (
            torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        )
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        check_inputs(self.net, input_ids, places, shown)
        if (shown[:, 1:] & ~shown[:, :-1]).any():
            raise ValueError(
                "attention_mask: padding must stand at the end of a row, as positions are counted from its start"
            )
        known = (input_ids != self.net.mask_id) | ~shown
        watch = Watch(self, input_ids, ~known, callback_on_step_end, output_trace)
        made = generate(
            self.net,
            self.net.method,
            input_ids,
            known,
            decoding,
            asked.seed or 0,
            lengths=shown.sum(1),
            on_step=watch,
        )
        sequences = torch.where(shown, made.tokens, input_ids)
        if not return_dict_in_generate:
            return sequences
        pace = (~known).sum(1) / watch.steps.clamp(min=1)
        trace = watch.trace if output_trace else None
        return GeneratedOutput(sequences, made.order, made.forward_passes, made.processed, pace, trace)

    def decoding(self, asked: Settings) -> Decoding:
        """The Decoding that settings mean for this model. Raises ValueError where they do not suit its method."""
        if asked.num_latent_tokens not in (None, "all"):
            check_int("num_latent_tokens", asked.num_latent_tokens, 0)
        if asked.steps is not None and asked.tokens_per_step is not None:
            raise ValueError(
                f"steps={asked.steps} and tokens_per_step={asked.tokens_per_step}: one follows from the other; give one of them"
            )
        if asked.do_sample is False and asked.temperature:
            raise ValueError(
                f"do_sample=False with temperature={asked.temperature}: without sampling the likeliest token is taken; leave one out"
            )
        for name, least in (("steps", 1), ("seed", 0)):
            if getattr(asked, name) is not None:
                check_int(name, getattr(asked, name), least)
        temperature = 0.0 if asked.do_sample is False and asked.temperature is None else asked.temperature
        config = EvalConfig(
            candidates=asked.candidates,
            order=asked.order,
            tokens_per_step=asked.tokens_per_step,
            temperature=temperature,
            top_p=asked.top_p,
        )
        decoding = decoding_for(self.net.method, task_of(self.config), config, asked.num_latent_tokens)
        if asked.steps is not None:
            decoding = replace(decoding, tokens_per_step=equal_parts(asked.steps))
        check_decoding(self.net.method, decoding)
        return decoding


class Watch:
    """Counts the steps of each row, keeps them where they are asked for, and tells a callback (an `on_step` of `generate`)."""

    def __init__(
        self, model: Any, input_ids: Tensor, open: Tensor, callback: Callable[..., Any] | None, keeps: bool
    ) -> None:
        self.model, self.callback, self.keeps = model, callback, keeps
        self.sequences, self.open, self.left = input_ids.clone(), open.sum(1), open.sum(1)
        self.steps, self.trace = torch.zeros_like(self.left), list[dict[str, Any]]()

    def __call__(self, step: Step) -> None:
        share = float((self.left / self.open.clamp(min=1))[step.rows].max())
        row, holds = step.rows[:, None].expand_as(step.chosen), step.chosen >= 0
        self.sequences[row[holds], step.chosen[holds]] = step.tokens[holds]
        self.left[step.rows] -= holds.sum(1)
        self.steps[step.rows] += 1
        if self.keeps:
            columns = (
                step.rows.tolist(),
                step.number.tolist(),
                step.chosen.tolist(),
                step.tokens.tolist(),
                step.candidates,
                step.latents,
            )
            for number, at, positions, tokens, candidates, latents in zip(*columns, strict=True):
                chosen = [position for position in positions if position >= 0]
                about = {"row": number, "step": at, "positions": chosen, "tokens": tokens[: len(chosen)]}
                self.trace.append({**about, "candidates": candidates, "latents": latents})
        if self.callback is not None:
            self.callback(self.model, int(step.number[0]), share, {"sequences": self.sequences.clone()})


def settings_of(given: dict[str, Any], config: GenerationConfig | None) -> Settings:
    """What is given, else what a GenerationConfig says. Raises ValueError where that says more than decoding can do."""
    said = {} if config is None else config.to_diff_dict()
    other = sorted(name for name in said if name not in given and name not in OF_THE_LIBRARY)
    if other:
        raise ValueError(
            f"generation_config.{other[0]}={said[other[0]]}: no setting of this decoding; it has {', '.join(given)}"
        )
    return Settings(**{name: said.get(name) if value is None else value for name, value in given.items()})


def task_of(config: PretrainedConfig) -> Language:
    """The task whose defaults a model's decoding has; None where it is one of its own, which has none."""
    name = str((getattr(config, "task", None) or {}).get("name"))
    return Text() if name == Text.name else cast(Language, TASKS.get(name))


def check_inputs(net: Any, input_ids: Tensor, places: Tensor, shown: Tensor) -> None:
    """Raises ValueError, naming what is allowed, where tokens, positions or padding are of another shape or out of range."""
    if (
        input_ids.dim() != 2
        or shown.shape != input_ids.shape
        or places.shape not in (input_ids.shape[1:], input_ids.shape, (1, *input_ids.shape[1:]))
    ):
        shapes = f"attention_mask {tuple(shown.shape)}, position_ids {tuple(places.shape)}"
        raise ValueError(
            f"input_ids {tuple(input_ids.shape)} with {shapes}: all of them must be (rows, slots)"
        )
    if input_ids.is_floating_point() or input_ids.is_complex() or input_ids.dtype == torch.bool:
        raise ValueError(f"input_ids of {input_ids.dtype}: must be whole numbers")
    if input_ids.shape[1] > net.max_length:
        raise ValueError(
            f"input_ids of {input_ids.shape[1]} slots: this model learned sequences of {net.max_length}; cut them"
        )
    if ((input_ids < 0) | (input_ids > net.mask_id)).logical_and(shown).any():
        found = input_ids[shown & ((input_ids < 0) | (input_ids > net.mask_id))][0]
        raise ValueError(
            f"input_ids: {int(found)} is no token; must be 0..{net.mask_id - 1}, or {net.mask_id} for MASK"
        )
    places = places.expand_as(input_ids)
    if ((places < 0) | (places >= net.max_length)).logical_and(shown).any():
        raise ValueError(f"position_ids: must lie in 0..{net.max_length - 1}")
    ranked = places.masked_fill(~shown, -1).sort(dim=1).values
    if ((ranked.diff(dim=1) == 0) & (ranked[:, 1:] >= 0)).any():
        raise ValueError("position_ids: a row names a position twice")


def mean_nats(logits: Tensor, labels: Tensor, read: Tensor, vocab_size: int) -> Tensor:
    """The mean cross-entropy of the labels that are scored; 0 where none is. Raises ValueError where a label is no token."""
    scored = labels != IGNORED
    if labels.shape != read.shape or ((labels < 0) | (labels >= vocab_size)).logical_and(scored).any():
        raise ValueError(
            f"labels {tuple(labels.shape)}: must be of the shape {tuple(read.shape)} and 0..{vocab_size - 1}, or {IGNORED} for none"
        )
    scored = scored & read
    return F.cross_entropy(logits[scored].float(), labels[scored], reduction="sum") / scored.sum().clamp(
        min=1
    )


AutoConfig.register(LatentTokensConfig.model_type, LatentTokensConfig, exist_ok=True)
AutoModelForMaskedLM.register(LatentTokensConfig, LatentTokensForMaskedLM, exist_ok=True)
