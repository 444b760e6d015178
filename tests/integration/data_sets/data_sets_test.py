"""The data sets that deploy/setup built: sizes, languages and scripts, length in tokens, and that nothing held out is
trained on. usage: data_sets_test.py DEPS (run with DEPS/setup-venv/bin/python)"""

import hashlib
import json
import sys
import unicodedata
import unittest
from collections import Counter
from pathlib import Path

DEPS = Path(sys.argv.pop())
DATA = DEPS / "data"
NAMES = ("code", "long_text", "multilingual")
LONG_TEXT_TOKENS = 4096


def rows(name, side):
    with open(DATA / f"{name}.{side}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def script(text):
    """The writing system of most letters, by the first word of their Unicode names."""
    names = Counter(unicodedata.name(c, "?").split()[0] for c in text[:4000] if c.isalpha() and not c.isascii())
    return names.most_common(1)[0][0] if names else "LATIN"


class DataSetsTest(unittest.TestCase):
    def test_each_has_one_to_five_megabytes(self):
        for name in NAMES:
            for side in ("train", "validation"):
                size = (DATA / f"{name}.{side}.jsonl").stat().st_size
                self.assertTrue(1_000_000 <= size <= 5_000_000, f"{name}.{side}: {size} bytes")

    def test_rows_are_whole_documents_with_their_source(self):
        sources = (DATA / "SOURCES.md").read_text(encoding="utf-8")
        for name in NAMES:
            for row in rows(name, "train") + rows(name, "validation"):
                self.assertEqual(set(row), {"text", "id", "tag", "language"})
                self.assertTrue(row["text"].strip())
                self.assertIn(f"| {name} | {row['tag']} |", sources)

    def test_nothing_held_out_is_trained_on(self):
        for name in NAMES:
            train, held_out = rows(name, "train"), rows(name, "validation")
            self.assertFalse({row["id"] for row in train} & {row["id"] for row in held_out}, name)
            hashes = [{hashlib.sha256(row["text"].encode()).digest() for row in side} for side in (train, held_out)]
            self.assertFalse(hashes[0] & hashes[1], name)
            self.assertEqual(len(hashes[0]), len(train), f"{name}: a document twice")

    def test_multilingual_has_six_languages_in_several_scripts_on_both_sides(self):
        for side in ("train", "validation"):
            found = rows("multilingual", side)
            self.assertGreaterEqual(len({row["language"] for row in found}), 6)
            self.assertGreaterEqual(len({script(row["text"]) for row in found} - {"?"}), 3)

    def test_long_text_rows_have_4096_tokens(self):
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(DEPS / "models/smollm2-135m-instruct/tokenizer.json"))
        for row in rows("long_text", "validation"):
            tokens = len(tokenizer.encode(row["text"], add_special_tokens=False).ids)
            self.assertGreaterEqual(tokens, LONG_TEXT_TOKENS, row["id"])

    def test_code_parses(self):
        for row in rows("code", "validation"):
            compile(row["text"], row["id"], "exec", dont_inherit=True)


if __name__ == "__main__":
    unittest.main()
