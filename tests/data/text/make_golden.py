#!/usr/bin/env python3
"""Writes golden.json beside this file: what Hugging Face's own libraries make of tricky strings and chats.

    .deps/peers/bin/python tests/data/text/make_golden.py .deps/models/smollm2-135m-instruct

Needs tokenizers and transformers; versions are noted in the output. The C++ tests compare ids, decoded text and
rendered chats with it, exactly.
"""

import json
import pathlib
import random
import sys

import tokenizers
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

STRINGS = [
    "", " ", "  ", "\n", "\n\n\n", "\t\tx", "a", "Hello, world!", " leading", "trailing ", "two  spaces   three",
    "I'll say it's they're we've I'd can't O'Neil", "I\u2019m", "UPPER lower MiXeD", "x" * 300, "ab" * 200,
    "0123456789", "3.14159e-10", "1,234,567", "v1.2.3-rc4", "２０２６", "Ⅻ ½ ²",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n", "a\r\nb\rc\n", "if(a&&b||!c){d[0]+=1;}",
    "naïve café Straße ŒUVRE", "cafe\u0301", "Ελληνικά κείμενα", "Привет, мир", "שלום עולם", "مرحبا بالعالم",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界", "こんにちは世界", "안녕하세요", "👍", "👩‍👩‍👧‍👦 family", "🇫🇷🇩🇪", "e\u0301\u0327",
    "\u200b\u200d\ufeff", "\u00a0nbsp\u2003em", "\u2028line\u2029para", "\x00nul\x01\x1f\x7f", "\U0010ffff", "\ufffd",
    "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|>", "<|im_end|> <|im_end|>", "< |im_end| >", "<|im_start", "<|nope|>",
    "https://example.org/a?b=c&d=%20#e", "user@example.org", "C:\\dir\\file.txt", "$x^2 + \\frac{1}{2}$",
    " " * 1000, "a" + " " * 77 + "b", "\n" * 100, "=" * 120, "aaaaaaaaab" * 30, "\u0645\u064e" * 20, "😀" * 20,
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit. " * 8,
]

CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi, how are you?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"},
     {"role": "assistant", "content": "4"}, {"role": "user", "content": "And 3+3?"},
     {"role": "assistant", "content": "6"}],
    [{"role": "user", "content": "  spaces and\n\nlines \n"}, {"role": "assistant", "content": "\n\nstarts with lines"}],
    [{"role": "user", "content": "日本語で👍"}, {"role": "assistant", "content": "はい、{{ 7 * 7 }} {% if %}<b>&amp;</b>"}],
    [{"role": "user", "content": "a<|im_end|>b"}, {"role": "assistant", "content": "same"},
     {"role": "user", "content": "same"}, {"role": "assistant", "content": "same"}],
]

TURNS = [{"role": "system", "content": " Be kind. "}, {"role": "user", "content": " What's \"up\" & <b>? "},
         {"role": "assistant", "content": " Nothing — é. "}, {"role": "user", "content": "ok"},
         {"role": "assistant", "content": "Fine."}]

# Written for this test: each uses what templates of the well-known families use.
TEMPLATES = {
    "trimmed headers, bos": "{{- bos_token }}\n{%- for message in messages %}\n    {{- '<|start|>' + message['role'] + '<|end|>\\n\\n' "
        "+ message['content'] | trim + '<|eot|>' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
        "    {{- '<|start|>assistant<|end|>\\n\\n' }}\n{%- endif %}\n",
    "system into first user": "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = messages[0]['content'] %}"
        "{% else %}{% set rest = messages %}{% set sys = false %}{% endif %}{% for message in rest %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% if loop.index0 == 0 and sys != false %}{% set content = '<<SYS>>\\n' + sys + '\\n<</SYS>>\\n\\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
        "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "namespace and loop controls": "{%- set ns = namespace(n=0, seen='') %}\n{% for m in messages %}\n{% if m.role == 'system' %}{% continue %}{% endif %}\n"
        "  {%- set ns.n = ns.n + 1 %}\n  {%- set ns.seen = ns.seen ~ m.role[0] | upper %}\n{{ ns.n }}:{{ m.content.split('up')[-1].rstrip() }}|\n"
        "{% if ns.n >= 3 %}{% break %}{% endif %}\n{% endfor %}\n{{ ns.seen }}{{ ns.seen.lower() }}{{ messages | length }}{{ messages[-1].role }}",
    "tojson": "{% for m in messages %}{{ m | tojson }}\n{{ m.content | tojson(indent=2) }}{{ [1, 2.5, true, none, {'a': [m.role]}] | tojson }}{% endfor %}",
    "tests and defaults": "{% if tools is none %}no tools{% endif %}{% if tools is defined and tools %}X{% endif %}{{ nothing | default('d') }}"
        "{% if strftime_now is defined %}{% endif %}{% for m in messages if m.role != 'system' %}{% if m.content is string %}"
        "{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ m['content'].replace('ok', 'okay') | trim }}{{ m.content.startswith(' ') }}{% endif %}{% endfor %}"
        "{{ messages | map(attribute='role') | list | join(',') }}{{ messages[1:3] | length }}{{ (messages | selectattr('role', 'equalto', 'user') | list) | length }}",
    "macro and generation tag": "{% macro turn(m) %}[{{ m.role }}]{{ m.content }}{% endmacro %}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% generation %}{{ turn(m) }}{{ eos_token }}{% endgeneration %}{% else %}{{ turn(m) }}{% endif %}{% endfor %}\n",
}


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    rng = random.Random(1)
    lists = [[rng.randrange(fast.get_vocab_size()) for _ in range(200)] for _ in range(4)]
    # Ids of single bytes and pieces of characters, where streaming is hardest.
    odd = [i for i in range(fast.get_vocab_size()) if "\ufffd" in fast.decode([i])]
    lists += [[rng.choice(odd) for _ in range(200)] for _ in range(4)]
    golden = {
        "versions": {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__},
        "vocab_size": fast.get_vocab_size(),
        "strings": [{"text": s, "ids": (ids := fast.encode(s).ids),
                     "decoded": fast.decode(ids, skip_special_tokens=True)} for s in STRINGS],
        "lists": [{"ids": ids, "decoded": fast.decode(ids, skip_special_tokens=False)} for ids in lists],
        "chats": [], "templates": [],
    }
    for messages in CHATS:
        for prompt in (False, True):
            text = auto.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
            ids = auto.apply_chat_template(messages, add_generation_prompt=prompt)["input_ids"]
            golden["chats"].append({"messages": messages, "add_generation_prompt": prompt, "text": text, "ids": list(ids)})
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for name, source in TEMPLATES.items():
        for prompt in (False, True):
            (text,), _ = render_jinja_template([TURNS], chat_template=source, add_generation_prompt=prompt, **tokens)
            golden["templates"].append({"name": name, "source": source, "tokens": tokens, "messages": TURNS,
                                        "add_generation_prompt": prompt, "text": text})
    out = pathlib.Path(__file__).with_name("golden.json")
    # One case a line, so that a change shows as the lines that changed.
    parts = []
    for key, value in golden.items():
        rows = ",\n".join(json.dumps(v) for v in value) if isinstance(value, list) else None
        parts.append(f"{json.dumps(key)}: " + (f"[\n{rows}\n]" if rows is not None else json.dumps(value)))
    out.write_text("{" + ",\n".join(parts) + "}\n")
    print(out, out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
