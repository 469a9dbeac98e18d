"""Encoders of a few thousand random numbers, built on the spot; need torch and transformers."""

import json
from pathlib import Path
from typing import Any

WORDS = [f"w{i}" for i in range(40)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "</s>"]
TOKENS = 16
WIDTH = 32


def tokenizer(folder: Path, *, template: str | None = "[CLS] $A [SEP]", **more: Any) -> None:
    """Writes a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: row for row, word in enumerate([*SPECIAL, *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if template is not None:
        special = [(word, vocabulary[word]) for word in SPECIAL if word in template]
        made.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    named = {"unk_token": "[UNK]", "pad_token": "[PAD]", "model_max_length": TOKENS}
    PreTrainedTokenizerFast(tokenizer_object=made, **(named | more)).save_pretrained(folder)


def bert(folder: Path, *, seed: int = 0, width: int = WIDTH, words: int | None = None) -> Path:
    """Writes a random BERT with its tokenizer; returns its folder."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=words or len(SPECIAL) + len(WORDS),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=TOKENS,
        pad_token_id=0,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer(folder, cls_token="[CLS]", sep_token="[SEP]")
    return folder


def decoder(folder: Path, kind: str, *, seed: int = 0) -> Path:
    """Writes a random "Mistral" or "Llama" with its tokenizer; returns its folder."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=1024,
        pad_token_id=0,
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    tokenizer(
        folder,
        template=None,
        eos_token="</s>",
        model_max_length=1024,
        model_input_names=["input_ids", "attention_mask"],
    )
    return folder


def sentence_model(folder: Path, pooling: dict[str, Any], **more: Any) -> Path:
    """Makes a folder of `bert` one of sentence-transformers; `more` are its modules' names."""
    names = {"0": "Transformer", "1": "Pooling", "2": "Normalize"} | more
    modules = [
        {
            "idx": int(key),
            "name": key,
            "path": "" if key == "0" else f"{key}_{name}",
            "type": f"sentence_transformers.models.{name}",
        }
        for key, name in names.items()
    ]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": WIDTH} | pooling)
    )
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 12, "do_lower_case": False})
    )
    return folder
