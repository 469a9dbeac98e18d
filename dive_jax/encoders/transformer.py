"""Encoders of transformers and sentence-transformers: text in, pooled vectors out.

torch is imported inside functions only, in a process that never imports jax.
"""

# pyright: reportMissingImports=false

import inspect
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from dive_jax.encoders import weights
from dive_jax.encoders.presets import DEFAULT_MAX_TOKENS, Spec
from dive_jax.types import InputError

_SANE_TOKENS = 1 << 20
"""A tokenizer that knows no bound says more than this."""


def check() -> None:
    """Raises `InputError` unless the packages of the extra `export` are installed."""
    weights.need("export", "torch", "transformers", "sentence_transformers")


def pick_device(name: str) -> Any:
    """Returns torch's device of a name; "auto" is a GPU where there is one.

    Raises:
      InputError: If there is no such device.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"--device: {name} cannot be used here ({reason}); try auto") from None
    return device


def torch_type(name: str) -> Any:
    """Returns torch's number type of "float32" or "bf16"."""
    import torch

    return {"float32": torch.float32, "bf16": torch.bfloat16}[name]


def pool(hidden: Any, mask: Any, how: str) -> Any:
    """Makes one vector of each text's token vectors.

    Args:
      hidden: torch tensor [texts, tokens, dim] of any floating type; widened before it is summed.
      mask: torch tensor [texts, tokens], 1 for tokens of the text, 0 for padding on either side.
      how: mean of the tokens; cls: the first; last: the last.

    Returns:
      float32 torch tensor [texts, dim].
    """
    import torch

    hidden = hidden.float()
    if how == "mean":
        kept = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)
    places = torch.arange(mask.shape[1], device=mask.device)
    masked = mask.bool()
    if how == "cls":
        at = torch.where(masked, places, mask.shape[1]).amin(dim=1).clamp(max=mask.shape[1] - 1)
    else:
        at = torch.where(masked, places, -1).amax(dim=1).clamp(min=0)
    return hidden[torch.arange(len(hidden), device=mask.device), at]


def count_tokens(tokenizer: Any, texts: list[str], *, special: bool) -> Int64[np.ndarray, " texts"]:
    """Returns how many tokens a tokenizer makes of each text, uncut."""
    # Without `verbose=False` it warns of texts that are longer than the model takes.
    found = tokenizer(
        texts, add_special_tokens=special, truncation=False, padding=False, verbose=False
    )
    return np.array([len(each) for each in found["input_ids"]], np.int64)


def guarded(call: Any, *arguments: Any, **named: Any) -> Any:
    """Calls torch without gradients; a lack of device memory is a `MemoryError` of one line."""
    import torch

    try:
        with torch.inference_mode():
            return call(*arguments, **named)
    except torch.OutOfMemoryError:
        raise MemoryError(
            "the device has too little memory; lower --batch_size or --max_tokens"
        ) from None


class Transformer:
    """A transformers encoder with pooling; see `presets.Encoder` for its methods.

    Args:
      spec: What to load.
      tokenizer: transformers' tokenizer.
      model: transformers' model, in its place and type.
      device: torch's device.
      compute: Number type and device, in words.
      fingerprint: SHA-256 (hex) of the weights.
    """

    def __init__(
        self, spec: Spec, tokenizer: Any, model: Any, device: Any, compute: str, fingerprint: str
    ) -> None:
        self._spec, self._tokenizer, self._model, self._device = spec, tokenizer, model, device
        self.compute, self.fingerprint = compute, fingerprint
        self.dim: int = model.config.hidden_size
        self.pooling = spec.pooling or "mean"
        self.max_tokens = _bound(spec, tokenizer, model)
        self._accepted = set(inspect.signature(model.forward).parameters)
        self._words: int = model.get_input_embeddings().num_embeddings

    def _fed(self, texts: list[str], side: str) -> list[str]:
        prefix = self._spec.prefix(side)
        return [prefix + text for text in texts]

    def lengths(self, texts: list[str], side: str) -> Int64[np.ndarray, " texts"]:
        """Returns the tokens of each text, prefix and special tokens included, before the cut."""
        return count_tokens(self._tokenizer, self._fed(texts, side), special=True)

    def encode(self, texts: list[str], side: str) -> Float32[np.ndarray, "texts dim"]:
        """Returns one vector a text, not normalised, all in one batch."""
        tokens = self._tokenizer(
            self._fed(texts, side),
            padding=True,
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
        )
        if (highest := int(tokens["input_ids"].max())) >= self._words:
            raise InputError(
                f"{self._spec.weights}: the tokenizer gives token {highest}, the model knows "
                f"{self._words}; they do not belong together"
            )
        return guarded(self._pooled, tokens.to(self._device))

    def _pooled(self, tokens: Any) -> np.ndarray:
        mask = tokens["attention_mask"]
        given = {name: value for name, value in tokens.items() if name in self._accepted}
        hidden = self._model(**given).last_hidden_state
        return pool(hidden, mask, self.pooling).cpu().numpy()


def _positions(model: Any) -> int | None:
    """Returns how many tokens a model has positions for; None if it has no bound."""
    count = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(count, int) or count <= 0:
        return None
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    skipped = getattr(table, "padding_idx", None)  # RoBERTa and MPNet count from there
    return count if skipped is None else count - skipped - 1


def _bound(spec: Spec, tokenizer: Any, model: Any) -> int:
    """Returns the tokens after which texts are cut.

    Raises:
      InputError: If more are asked for than the model has positions.
    """
    said = tokenizer.model_max_length
    positions = _positions(model)
    if spec.max_tokens is None:
        limits = [said if said < _SANE_TOKENS else None, positions, spec.usual_tokens]
        return min((each for each in limits if each), default=DEFAULT_MAX_TOKENS)
    if positions is not None and spec.max_tokens > positions:
        raise InputError(
            f"--max_tokens: {spec.weights} takes at most {positions}, got {spec.max_tokens}"
        )
    return spec.max_tokens


def _check_complete(weights_name: str, info: Any) -> None:
    """Raises `InputError` if weights are missing: transformers would fill in random ones."""
    missing = [name for name in info["missing_keys"] if "pooler" not in name]
    if missing or info.get("mismatched_keys"):
        raise InputError(
            f"{weights_name}: {len(missing)} of the model's arrays are not among the weights "
            f"({', '.join(sorted(missing)[:2])}, …); wanted an encoder's weights"
        )


def _check_tokenizer(weights_name: str, tokenizer: Any) -> None:
    """Raises `InputError` unless a tokenizer knows words and can pad.

    Without its files transformers makes one that knows special tokens only.
    """
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise InputError(f"{weights_name}: no tokenizer among the files (tokenizer.json, …)")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise InputError(f"{weights_name}: the tokenizer has no token to pad with")


def load(spec: Spec, *, device: str, dtype: str) -> "Transformer | Pipeline":
    """Loads an encoder from its folder or from the hub.

    Args:
      spec: What to load, of kind transformer or pipeline.
      device: auto, cpu, cuda, cuda:1, mps.
      dtype: float32 or bf16.

    Returns:
      The encoder.

    Raises:
      InputError: If packages, files or the device are missing or wrong, or the hub is out of reach.
    """
    check()
    place = pick_device(device)
    if spec.kind == "pipeline":
        return _load_pipeline(spec, place, dtype)
    from transformers import AutoModel, AutoTokenizer

    known: dict[str, Any] = {"revision": spec.revision, "trust_remote_code": False}
    with weights.explained(spec.weights):
        tokenizer = AutoTokenizer.from_pretrained(spec.weights, **known)
        model, info = AutoModel.from_pretrained(spec.weights, output_loading_info=True, **known)
        _check_complete(spec.weights, info)
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        _check_tokenizer(spec.weights, tokenizer)
        model = model.to(place, torch_type(dtype)).eval()
        mark = weights.fingerprint([spec.weights], spec.revision)
    return Transformer(spec, tokenizer, model, place, f"{dtype} on {place.type}", mark)


class Pipeline:
    """A sentence-transformers model with modules of its own, run by sentence-transformers.

    Args:
      spec: What to load.
      model: Its `SentenceTransformer`.
      compute: Number type and device, in words.
      fingerprint: SHA-256 (hex) of the weights.
    """

    def __init__(self, spec: Spec, model: Any, compute: str, fingerprint: str) -> None:
        self._spec, self._model, self.pooling = spec, model, spec.pooling or "its own"
        self.compute, self.fingerprint = compute, fingerprint
        if spec.max_tokens is not None:
            model.max_seq_length = spec.max_tokens
        self.max_tokens: int = model.max_seq_length or DEFAULT_MAX_TOKENS
        newer = getattr(model, "get_embedding_dimension", None)
        self.dim: int = newer() if newer else model.get_sentence_embedding_dimension()

    def lengths(self, texts: list[str], side: str) -> Int64[np.ndarray, " texts"]:
        """Returns the tokens of each text, prefix and special tokens included, before the cut."""
        prefix = self._spec.prefix(side)
        return count_tokens(self._model.tokenizer, [prefix + each for each in texts], special=True)

    def encode(self, texts: list[str], side: str) -> Float32[np.ndarray, "texts dim"]:
        """Returns one vector a text, not normalised by us, all in one batch."""
        found = guarded(
            self._model.encode,
            texts,
            prompt=self._spec.prefix(side) or None,
            batch_size=len(texts),
            show_progress_bar=False,
            convert_to_tensor=True,
        )
        return found.float().cpu().numpy()


def _load_pipeline(spec: Spec, place: Any, dtype: str) -> Pipeline:
    with weights.explained(spec.weights):
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(
            spec.weights, device=str(place), revision=spec.revision, trust_remote_code=False
        )
        model = model.to(torch_type(dtype)).eval()
        _check_tokenizer(spec.weights, model.tokenizer)
        mark = weights.fingerprint([spec.weights], spec.revision)
    return Pipeline(spec, model, f"{dtype} on {place.type}", mark)
