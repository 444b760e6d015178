#!/usr/bin/env python3
"""Writes golden.json beside this file: perplexities, choice likelihoods, attention shares of transformers in fp32.

    .deps/peers/bin/python tests/data/evaluate/make_golden.py    # after deploy/setup/all and deploy/setup/peers

perplexity   of the first 1,200 tokens of jargon.txt: for each (context, stride) every token but the first is scored
             once, by passes of at most `context` tokens that end `stride` tokens apart (method.md §9.1). loss in nats
             a token
choices      of mmlu.csv: for each question and choice the sum of log P(choice's tokens | prompt), prompt and choice
             tokenised together and cut at the prompt's own length (§9.3)
attention    of needle_prompts.json: what the last row of the attention maps falls on, mean over layers and heads (§9.2).
             A token belongs to the part of its last character; the answer's needle is that of the question's first city

needle_prompts.json holds the prompts of

    dex-engine evaluate multi_needle --file tests/data/evaluate/jargon.txt --lengths 256 --depths-percent 50 \\
        --n-needles 3 --n-queries 2 --samples-per-cell 2 --samples-out FILE
"""

import csv
import hashlib
import json
import re
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


def attention_shares(model, tokenizer, prompt):
    parts = {"question": range(prompt.index("\n\nQuestion:"), len(prompt)), "answer": [], "other_needles": []}
    first_city = re.search(r"numbers of (\w+) and", prompt[parts["question"].start:]).group(1)
    for needle in re.finditer(r"The magic number of (\w+) is \d{6}\.", prompt):
        parts["answer" if needle.group(1) == first_city else "other_needles"] += range(*needle.span())
    encoding = tokenizer(prompt, return_offsets_mapping=True)
    maps = model(torch.tensor([encoding.input_ids]), output_attentions=True).attentions
    row = torch.stack([layer[0, :, -1].double() for layer in maps]).mean((0, 1))
    shares = dict.fromkeys(("answer", "other_needles", "first_token", "question", "filler"), 0.0)
    for i, (_, end) in enumerate(encoding.offset_mapping):
        part = next((name for name, characters in parts.items() if end - 1 in characters), "filler")
        shares["first_token" if i == 0 else part] += float(row[i])
    return shares


def main():
    torch.set_grad_enabled(False)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa").eval()
    text = HERE / "jargon.txt"
    ids = tokenizer(text.read_bytes().decode()).input_ids[:TOKENS]
    prompts = json.loads((HERE / "needle_prompts.json").read_text(encoding="utf-8"))
    eager = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    with (HERE / "mmlu.csv").open(newline="", encoding="utf-8") as file:
        questions = list(csv.reader(file))
    golden = {
        "source": {"script": Path(__file__).name, "transformers": transformers.__version__,
                   "torch": torch.__version__.split("+")[0], "weights_sha256": sha256(MODEL / "model.safetensors"),
                   "text_sha256": sha256(text)},
        "perplexity": [perplexity(model, ids, *window) for window in WINDOWS],
        "choices": [choice_sums(model, tokenizer, row[0], row[1:5]) for row in questions],
        "attention": [attention_shares(eager, tokenizer, prompt) for prompt in prompts],
    }
    parts = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in golden.items())
    (HERE / "golden.json").write_text("{" + parts + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
