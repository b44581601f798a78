"""The public names, each with its module. `__init__.py` reads this list."""

from .checkpoints.stored_methods import load_method as load_method
from .configs import EvalConfig as EvalConfig
from .core.attention import block_causal as block_causal, dense_mask as dense_mask
from .core.confidence import (
    Candidates as Candidates,
    entropy as entropy,
    margin as margin,
    of_logits as of_logits,
    top_prob as top_prob,
)
from .core.cost import (
    cached_cost as cached_cost,
    most_tokens as most_tokens,
    relative_cost as relative_cost,
    tokens_processed as tokens_processed,
)
from .core.decoding import Decoding as Decoding, growing as growing
from .core.denoiser import Denoiser as Denoiser
from .core.generated import Generated as Generated, Step as Step
from .core.layout import Layout as Layout, next_layout as next_layout
from .core.method import METHODS as METHODS, Method as Method
from .core.objective import loss as loss
from .core.order import (
    any_order as any_order,
    blockwise as blockwise,
    given as given,
    left_to_right as left_to_right,
)
from .core.policies import (
    PolicyInput as PolicyInput,
    influence as influence,
    nearest as nearest,
    random as random,
    relevant as relevant,
)
from .core.remasking import (
    BelowBound as BelowBound,
    Decoded as Decoded,
    LeastConfident as LeastConfident,
)
from .core.selection import (
    EntropyBound as EntropyBound,
    Factor as Factor,
    FixedCount as FixedCount,
    FrechetBound as FrechetBound,
    Threshold as Threshold,
    equal_parts as equal_parts,
    given_partition as given_partition,
    reverse_process as reverse_process,
)
from .data.config import DataConfig as DataConfig
from .data.datasets import make_data as make_data
from .data.loading import as_numpy as as_numpy, as_tensors as as_tensors, load_data as load_data
from .data.splits import dataset as dataset
from .evaluation.compare import Difference as Difference, compare as compare
from .evaluation.evaluate import evaluate as evaluate
from .evaluation.likelihood import nats_along_orders as nats_along_orders
from .evaluation.problems import solve as solve
from .evaluation.report import results as results
from .harness.lm_eval import LatentTokensLM as LatentTokensLM
from .hf.collator import DiffusionCollator as DiffusionCollator
from .hf.directory import from_pretrained as from_pretrained, save_pretrained as save_pretrained
from .hf.language_models import HuggingFaceDenoiser as HuggingFaceDenoiser
from .hf.reading import from_transformers as from_transformers
from .model import Model as Model, load as load, train as train
from .network.check import check_network as check_network
from .network.fast import generate as generate
from .network.likelihood import log_likelihood as log_likelihood
from .network.transformer import Transformer as Transformer
from .outputs import ResultTable as ResultTable, Samples as Samples
from .sizes import SIZES as SIZES, Size as Size
from .tasks import (
    TASKS as TASKS,
    Examples as Examples,
    Task as Task,
    TaskBase as TaskBase,
    Text as Text,
)
from .training.config import TrainConfig as TrainConfig
from .training.loop import fit as fit
