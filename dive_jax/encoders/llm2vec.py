"""LLM2Vec: a decoder that reads both ways, with PEFT weights, its own pooling and instruction.

Runs the class of the package `llm2vec`, whose pinned versions need an environment of their own.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from dive_jax.encoders import weights
from dive_jax.encoders.presets import Spec
from dive_jax.encoders.transformer import count_tokens, guarded, pick_device, torch_type
from dive_jax.types import InputError

_MARK = "!@#$%^&*()"
"""What LLM2Vec puts between instruction and text; a text that holds it would be torn."""

_INSTRUCTION_TOKENS = 112
"""Room for the instruction beside the text, as in LLM2Vec's defaults: 512 in all, 400 of text."""

_POOLINGS = {"mean": "mean", "cls": "bos_token", "last": "last_token"}


def check() -> None:
    """Raises `InputError` unless the packages of the extra `llm2vec` are installed."""
    weights.need("llm2vec", "torch", "llm2vec")


class Llm2Vec:
    """LLM2Vec's own class behind `presets.Encoder`'s methods.

    Args:
      spec: What was loaded.
      model: An `llm2vec.LLM2Vec`.
      device: torch's device.
      compute: Number type and device, in words.
      fingerprint: SHA-256 (hex) of the weights.
    """

    def __init__(self, spec: Spec, model: Any, device: Any, compute: str, fingerprint: str) -> None:
        self._spec, self._model, self._device = spec, model, device
        self.compute, self.fingerprint = compute, fingerprint
        self.dim: int = model.config.hidden_size
        self.pooling: str = model.pooling_mode
        self.max_tokens: int = model.doc_max_length

    def lengths(self, texts: list[str], side: str) -> Int64[np.ndarray, " texts"]:
        """Returns the tokens of each text before the cut, instruction and special tokens left out.

        Only these are pooled.
        """
        del side
        return count_tokens(self._model.tokenizer, texts, special=False)

    def encode(self, texts: list[str], side: str) -> Float32[np.ndarray, "texts dim"]:
        """Returns one vector a text, not normalised, all in one batch."""
        instruction, model = self._spec.prefix(side), self._model
        marked = [
            model._convert_to_str(instruction, text.replace(_MARK, " ".join(_MARK)))
            for text in texts
        ]
        features = model.tokenize([model.prepare_for_tokenization(each) for each in marked])
        given = {
            name: features[name].to(self._device)
            for name in ("input_ids", "attention_mask", "embed_mask")
        }
        return guarded(model, given).float().cpu().numpy()


def load(spec: Spec, *, device: str, dtype: str) -> Llm2Vec:
    """Loads base and PEFT weights from folders or from the hub.

    Args:
      spec: What to load. `weights` is a base model, or PEFT weights whose `adapter_config.json`
        names the base; each of `peft` goes on top, all but the last merged in.
      device: auto, cpu, cuda, cuda:1.
      dtype: float32 or bf16.

    Returns:
      The encoder.

    Raises:
      InputError: If packages, files or the device are missing or wrong, or the hub is out of reach.

    Source:
      BehnamGhader et al. 2024, LLM2Vec: large language models are secretly powerful text encoders.
    """
    check()
    place = pick_device(device)
    with weights.explained(" + ".join([spec.weights, *spec.peft])):
        model = _loaded(spec, dtype)
        model.to(place).eval()
        mark = weights.fingerprint([spec.weights, *spec.peft], spec.revision)
    return Llm2Vec(spec, model, place, f"{dtype} on {place.type}", mark)


def _loaded(spec: Spec, dtype: str) -> Any:
    from llm2vec import LLM2Vec
    from peft import PeftModel

    asked: dict[str, Any] = {"torch_dtype": torch_type(dtype)}
    if spec.pooling:
        asked["pooling_mode"] = _POOLINGS[spec.pooling]
    if spec.max_tokens is not None:
        asked["doc_max_length"] = spec.max_tokens
        asked["max_length"] = spec.max_tokens + _INSTRUCTION_TOKENS
    if spec.revision is not None:
        asked["revision"] = spec.revision
    first, *others = spec.peft or (None,)
    model = LLM2Vec.from_pretrained(
        spec.weights, peft_model_name_or_path=first, merge_peft=bool(others), **asked
    )
    for index, name in enumerate(others):
        model.model = PeftModel.from_pretrained(model.model, name)
        if index + 1 < len(others):
            model.model = model.model.merge_and_unload()
    if spec.chat is not None:
        model.model.config._name_or_path = spec.chat
    if model.tokenizer.pad_token is None:
        raise InputError(f"{spec.weights}: the tokenizer has no end token to pad with")
    return model
