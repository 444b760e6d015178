#!/usr/bin/env python3
"""Writes golden.json beside this file: perplexities and choice likelihoods of transformers in fp32.

    .deps/peers/bin/python tests/data/evaluate/make_golden.py    # after deploy/setup/all and deploy/setup/peers

perplexity   of the first 1,200 tokens of jargon.txt: for each (context, stride) every token but the first is scored
             once, by passes of at most `context` tokens that end `stride` tokens apart (method.md §9.1). loss in nats
             a token
choices      of mmlu.csv: for each question and choice the sum of log P(choice's tokens | prompt), prompt and choice
             tokenised together and cut at the prompt's own length (§9.3)
"""

import csv
import hashlib
import json
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[2] / ".deps/models/smollm2-135m-instruct"
WINDOWS = [(512, 256), (256, 192)]
TOKENS = 1200


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def logprobs(model, ids):
    """Log-probability of ids[1:], each given all before it."""
    logits = model(torch.tensor([ids])).logits[0].double()
    return torch.log_softmax(logits[:-1], -1)[range(len(ids) - 1), ids[1:]]


def perplexity(model, ids, context, stride):
    total, count, scored = 0.0, 0, 1  # targets below `scored` have been counted
    end = min(context, len(ids))
    while True:
        begin = max(0, end - context)
        new = end - scored
        total -= float(logprobs(model, ids[begin:end])[-new:].sum())
        count, scored = count + new, end
        if end == len(ids):
            break
        end = min(end + stride, len(ids))
    assert count == len(ids) - 1
    return {"context": context, "stride": stride, "tokens": count, "loss": total / count}


def choice_sums(model, tokenizer, question, choices):
    prompt = f"Question: {question}\nAnswer:"
    cut = len(tokenizer(prompt).input_ids)
    return [float(logprobs(model, tokenizer(f"{prompt} {choice}").input_ids)[cut - 1:].sum()) for choice in choices]


def main():
    torch.set_grad_enabled(False)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa").eval()
    text = HERE / "jargon.txt"
    ids = tokenizer(text.read_bytes().decode()).input_ids[:TOKENS]
    with (HERE / "mmlu.csv").open(newline="", encoding="utf-8") as file:
        questions = list(csv.reader(file))
    golden = {
        "source": {"script": Path(__file__).name, "transformers": transformers.__version__,
                   "torch": torch.__version__.split("+")[0], "weights_sha256": sha256(MODEL / "model.safetensors"),
                   "text_sha256": sha256(text)},
        "perplexity": [perplexity(model, ids, *window) for window in WINDOWS],
        "choices": [choice_sums(model, tokenizer, row[0], row[1:5]) for row in questions],
    }
    parts = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in golden.items())
    (HERE / "golden.json").write_text("{" + parts + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
