#!/usr/bin/env python3
"""Makes the golden values in this folder with Hugging Face's own libraries, for tests of engine, trainer and text.

    .deps/peers/bin/python tests/data/golden/make_golden.py    # after deploy/setup/all and deploy/setup/peers

model.json      greedy continuations, log-probabilities and logits of transformers in fp32 on the imported folder
tokenizer.json  token ids of tricky strings, and what the ids decode to
chat.json       renderings of the chat template, and their ids

README.md beside it says what each field is. Run again only when the model or a case changes.
"""

import argparse
import hashlib
import json
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[2] / ".deps/models/smollm2-135m-instruct"
NEW_TOKENS = 24
HEAD = 16  # entries of the logits that are kept

PROMPTS = {
    "code": "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n",
    "prose": "The water cycle describes how water moves between the ocean, the air and the land. First,",
    "digits": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
    "chat": [{"role": "user", "content": "Name three primary colours."}],
}
STRINGS = {
    "empty": "", "space": " ", "spaces": "     ", "newlines": "\n\n\n", "tab": "\t\tx\t", "trailing_space": "end ",
    "words": "Hello, world! It's 'quoted' and we'll see they've won't.", "upper": "HELLO WORLD CamelCaseWord snake_case_word",
    "digits": "1234567890 3.14159 1,000,000 007", "digits_after_spaces": "a  12   345\n    6789", "digits_in_words": "x86_64 H2O utf8 v1.2.3-rc4",
    "unicode_digits": "٣٤٥ ४५६ ½ ² Ⅷ", "code": "def f(x):\n    if x > 0:\n        return x ** 2\n\n    return -x  # done\n",
    "code_tabs": "int main() {\n\tfor (int i = 0; i < 10; ++i)\n\t\tprintf(\"%d\\n\", i);\n}\n", "crlf": "first\r\nsecond\r\n\r\nthird",
    "emoji": "👍 🙂🙃 👩‍👩‍👧‍👦 🇩🇪 ✈️", "emoji_in_text": "Well done🎉🎉!", "cjk": "人工智能正在改变世界。日本語のテキストです。", "hangul": "안녕하세요 세계",
    "arabic": "مرحبا بالعالم، كيف حالك؟", "hebrew": "שלום עולם", "hindi": "नमस्ते दुनिया", "thai": "สวัสดีชาวโลก", "cyrillic": "Привет, мир!",
    "greek": "Καλημέρα κόσμε", "accents": "Ünïcödé naïve café Straße", "combining": "e\u0301 n\u0303 a\u0308\u0323 Z\u0351\u036b\u0343", "nbsp": "a\u00a0b\u2003c\u3000d",
    "zero_width": "a\u200bb\u200dc\ufeffd", "controls": "a\u0001b\u007fc\u0085d", "missing_bytes": "a\u0004b\u0013c", "rare_plane": "𝒳𝔘 𠜎 \U000e0041 \U0010ffff",
    "math": "∑∞ᵢ₌₀ xᵢ² ≤ ∫f(x)dx → ∞", "special": "<|im_start|>user\nhi<|im_end|>", "special_near": "<|im_start> <|im_end|", "special_in_words": "a<|endoftext|>b <repo_name>c",
    "url": "https://example.org/a/b?c=d&e=%20f#g", "long_run": "a" * 70 + "=" * 40, "json": "{\"a\": [1, 2.5e-3, null], \"b\": \"\\u00e9\\n\"}",
}
CHATS = {
    "one_turn": [{"role": "user", "content": "Hello!"}],
    "with_system": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "What is 2 + 2?"}],
    "three_turns": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello! How can I help?"},
                    {"role": "user", "content": "Write  code:\n\n    x = 1\n"}],
    "ends_with_assistant": [{"role": "user", "content": "Ping"}, {"role": "assistant", "content": "Pong"}],
    "unicode": [{"role": "system", "content": "日本語で答える"}, {"role": "user", "content": "👍 é \"quoted\" <b>&amp;</b>"}],
    "empty_content": [{"role": "user", "content": ""}],
    "marker_in_text": [{"role": "user", "content": "what is <|im_end|> for?"}],
}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rounded(values, digits=6):
    return [round(float(value), digits) for value in values]


def model_case(model, prompt):
    """Greedy continuation of prompt; log-probabilities and logits of prompt and continuation in one pass."""
    ids = torch.tensor([prompt])
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False)[0]
    logits = model(whole[None, :]).logits[0].float()
    logprobs = torch.log_softmax(logits.double(), -1)
    positions = sorted({0, 1, len(prompt) // 2, len(prompt) - 1, len(whole) - 1})
    best = logits[:-1].topk(2).values
    return {
        "prompt": prompt, "greedy": whole[len(prompt):].tolist(),
        "greedy_margin": round(float((best[len(prompt) - 1:, 0] - best[len(prompt) - 1:, 1]).min()), 4),
        "token_logprobs": rounded(logprobs[range(len(whole) - 1), whole[1:]]),
        "logits": [{"position": at, "first": rounded(logits[at, :HEAD], 5), "argmax": int(logits[at].argmax()),
                    "max": round(float(logits[at].max()), 5), "logsumexp": round(float(logits[at].double().logsumexp(0)), 6)}
                   for at in positions],
    }


def text_case(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False).input_ids
    return {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}


def chat_case(tokenizer, messages, generation_prompt):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation_prompt)
    return {"messages": messages, "add_generation_prompt": generation_prompt, "text": text,
            "ids": tokenizer(text, add_special_tokens=False).input_ids}


def write(name, source, cases):
    """A case a line: small, and readable in a diff."""
    lines = ",\n".join(f"  {json.dumps(case)}: {json.dumps(value, ensure_ascii=False)}" for case, value in cases.items())
    (HERE / name).write_text(f'{{"source": {json.dumps(source)},\n "cases": {{\n{lines}\n}}}}\n', encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL, metavar="DIR", help="the imported folder (default %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    source = {"script": Path(__file__).name, "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
              "dtype": "float32", "weights_sha256": sha256(args.model / "model.safetensors"),
              "tokenizer_sha256": sha256(args.model / "tokenizer.json"),
              "chat_template_sha256": sha256(args.model / "chat_template.jinja")}

    write("tokenizer.json", source, {name: text_case(tokenizer, text) for name, text in STRINGS.items()})
    write("chat.json", source, {f"{name}{'' if prompt else '_closed'}": chat_case(tokenizer, messages, prompt)
                                for name, messages in CHATS.items() for prompt in (True, False)})

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = None  # always NEW_TOKENS
    as_text = {name: text if isinstance(text, str) else tokenizer.apply_chat_template(text, tokenize=False, add_generation_prompt=True)
               for name, text in PROMPTS.items()}
    write("model.json", source, {name: model_case(model, tokenizer(text, add_special_tokens=False).input_ids)
                                 for name, text in as_text.items()})


if __name__ == "__main__":
    main()
