#!/usr/bin/env python3
"""Makes the data sets code, long_text and multilingual out of what Debian packages ship; nothing is invented.

Reads unpacked packages (SOURCES/PACKAGE/, with their version in SOURCES/PACKAGE/VERSION) and writes
OUT/{code,long_text,multilingual}.{train,validation}.jsonl, OUT/SOURCES.md and OUT/licences/. A line is one whole
document: {"text", "id", "tag": package, "language"}. The same packages give the same bytes.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

# package → (licence, what of it is used)
LICENCES = {
    "libpython3.11-minimal": ("PSF-2.0", "modules of Python's standard library"),
    "libpython3.11-stdlib": ("PSF-2.0", "modules of Python's standard library"),
    "python3.11-doc": ("PSF-2.0", "Python's manual, reStructuredText"),
    "perl-doc": ("GPL-1+ or Artistic", "Perl's manual, POD"),
    "vim-runtime": ("OPL-1+, no licence options exercised", "Vim's manual"),
    "git-doc": ("GPL-2", "Git's manual and notes, AsciiDoc"),
}
CODE = ("libpython3.11-minimal", "libpython3.11-stdlib")
LONG_TEXT = {  # package → (folder, pattern, bytes to take for training)
    "python3.11-doc": ("usr/share/doc/python3.11/html/_sources", "**/*.rst.txt", 1_600_000),
    "perl-doc": ("usr/share/perl", "*/pod/*.pod", 1_500_000),
    "vim-runtime": ("usr/share/vim/vim90/doc", "*.txt", 1_100_000),
    "git-doc": ("usr/share/doc/git-doc", "**/*.txt", 500_000),
}
MANUALS = {  # package → {folder below usr/share/man: language}
    "manpages-cs": {"cs": "cs"}, "manpages-de": {"de": "de"}, "manpages-es": {"es": "es"},
    "manpages-fr": {"fr": "fr"}, "manpages-ja": {"ja": "ja"}, "manpages-pl": {"pl": "pl"},
    "manpages-pt-br": {"pt_BR": "pt-BR"}, "manpages-ru": {"ru": "ru"}, "manpages-tr": {"tr": "tr"},
    "manpages-uk": {"uk": "uk"}, "manpages-vi": {"vi": "vi"}, "manpages-zh": {"zh_CN": "zh-CN", "zh_TW": "zh-TW"},
}
# Pages with a larger share of ASCII than this are hardly translated.
MOST_ASCII = {"cs": 0.97, "ja": 0.8, "pl": 0.98, "ru": 0.8, "tr": 0.97, "uk": 0.8, "vi": 0.92, "zh-CN": 0.8, "zh-TW": 0.8}
MANUAL_LICENCE = "a free one a page (GPL-2+, GPL-3+, BSD, GFDL-1.2+ …)"
TOOLS = ("mandoc",)  # renders manual pages; runs from where it is unpacked

TRAIN_BYTES = {"code": 4_400_000, "long_text": None, "multilingual": 350_000}  # in all, (LONG_TEXT), a language
VALIDATION_SHARE = 5  # one document in so many is held out
LONG_TEXT_TOKENS = 4096
# What is no clean text, and what the tokenizer would take for a special token.
UNFIT = re.compile("\x00|\r|\ufffd|<\\|\\w+\\|>|<(?:repo_?name|file_sep|filename|gh_stars|issue_\\w+|jupyter_\\w+|empty_output)>")
GENERATED = re.compile(r"(^|/)(encodings|pydoc_data|__phello__|_sysconfigdata)")  # tables and the like


@dataclass(frozen=True)
class Document:
    name: str  # the same for all translations of a page: they go to the same side
    package: str
    language: str
    load: Callable[[], str | None]  # its text, or None where it does not fit the data set

    @property
    def id(self):
        return f"{self.package}/{self.language}/{self.name}"


def rank(text):
    """A fixed number for a text, spread evenly: orders documents and picks those held out."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def files(folder, pattern):
    return sorted(path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink())


def content(path):
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def ascii_share(text):
    return sum(letter < "\x80" for letter in text) / len(text)


def read(path, low, high):
    """A file's text if it is UTF-8 and low to high characters long."""
    try:
        text = content(path).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if low <= len(text) <= high else None


def code_documents(sources):
    for package in CODE:
        folder = sources / package / "usr/lib/python3.11"
        for path in files(folder, "**/*.py"):
            name = str(path.relative_to(folder))
            if not GENERATED.search(name):
                yield Document(name, package, "python", partial(read, path, 500, 100_000))


def long_text(path, tokenizer):
    text = read(path, 10_000, 150_000)
    if not text or ascii_share(text) < 0.99:  # perlcn.pod and its like are not English
        return None
    if len(tokenizer.encode(text, add_special_tokens=False).ids) >= LONG_TEXT_TOKENS:
        return text
    return None


def long_documents(sources, tokenizer):
    for package, (folder, pattern, _) in LONG_TEXT.items():
        root = sources / package / folder
        for path in files(root, pattern):
            yield Document(str(path.relative_to(root)), package, "en", partial(long_text, path, tokenizer))


def render(mandoc, path, language):
    """A manual page as text: a line a paragraph, without running title, bold, underline, long rules and wide gaps."""
    page = subprocess.run([mandoc, "-Kutf-8", "-Tutf8", "-Owidth=1000"], input=content(path), stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env={"LC_ALL": "C.UTF-8"}, check=False).stdout
    lines = re.sub(".\b", "", page.decode("utf-8", "replace")).rstrip().split("\n")
    body = "\n".join(line.removeprefix("       ").rstrip() for line in lines[1:-1])
    body = re.sub(r"(\S)\1{20,}", lambda run: run[1] * 20, re.sub(" {20,}", "  ", body))
    text = re.sub(r"\n{3,}", "\n\n", body).strip() + "\n"
    fits = 800 <= len(text) <= 40_000 and ascii_share(text) <= MOST_ASCII.get(language, 0.995)
    return text if fits else None


def manual_documents(sources):
    mandoc = str(sources / "mandoc/usr/bin/mandoc")
    for package, folders in MANUALS.items():
        for folder, language in folders.items():
            root = sources / package / "usr/share/man" / folder
            for path in files(root, "man*/*"):
                name = str(path.relative_to(root)).removesuffix(".gz")
                yield Document(name, package, language, partial(render, mandoc, path, language))


def choose(documents, group, budget):
    """([(document, text)] to train, the same to validate): of each group the first in a fixed random order that still
    fit into budget(group) bytes, or a quarter of it to validate."""
    seen, used, refused, sides = set(), Counter(), Counter(), ([], [])
    for document in sorted(documents, key=lambda item: (rank(item.id), item.id)):
        side = rank("split/" + document.name) % VALIDATION_SHARE == 0
        place = group(document), side
        if refused[place] == 5:  # full
            continue
        text = document.load()
        if not text or UNFIT.search(text) or text in seen:
            continue
        size = len(text.encode())
        if used[place] + size > budget(place[0]) / (VALIDATION_SHARE - 1 if side else 1):
            refused[place] += 1
            continue
        seen.add(text)
        used[place] += size
        sides[side].append((document, text))
    return sides


def write_lines(path, documents):
    part = path.with_suffix(".part")
    with open(part, "w", encoding="utf-8", newline="\n") as out:
        for item, text in sorted(documents, key=lambda pair: pair[0].id):
            row = {"text": text, "id": item.id, "tag": item.package, "language": item.language}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.replace(part, path)


def copyright_file(sources, package):
    """A package's copyright file; its documentation may be a link to the folder of another package."""
    folder = sources / package / "usr/share/doc" / package
    owner = folder.readlink().name if folder.is_symlink() else package
    return sources / owner / "usr/share/doc" / owner / "copyright"


def write_sources(out, sources, chosen):
    """SOURCES.md and each package's own copyright file."""
    lines = ["# Where the data sets come from", "", "Made by deploy/setup/make_datasets.py from Debian packages, documents unchanged but for",
             "manual pages, which are rendered to plain text. Full licence texts: licences/.", "",
             "| data set | package | version | licence | what | train | validation |", "| --- | --- | --- | --- | --- | --- | --- |"]
    shutil.rmtree(out / "licences", ignore_errors=True)
    (out / "licences").mkdir()
    for name, sides in chosen.items():
        for package in sorted({document.package for side in sides for document, _ in side}):
            licence, what = LICENCES.get(package, (MANUAL_LICENCE, "translated manual pages"))
            version = (sources / package / "VERSION").read_text().strip()
            counts = " | ".join(str(sum(document.package == package for document, _ in side)) for side in sides)
            lines.append(f"| {name} | {package} | {version} | {licence} | {what} | {counts} |")
            shutil.copyfile(copyright_file(sources, package), out / "licences" / f"{package}.copyright")
    (out / "SOURCES.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", action="store_true", help="print the packages that are needed, and end")
    parser.add_argument("--sources", type=Path, metavar="DIR")
    parser.add_argument("--tokenizer", type=Path, metavar="tokenizer.json", help="counts the tokens of long_text")
    parser.add_argument("--out", type=Path, metavar="DIR")
    args = parser.parse_args()
    if args.packages:
        print(*sorted({*CODE, *LONG_TEXT, *MANUALS, *TOOLS}), sep="\n")
        return
    if not (args.sources and args.tokenizer and args.out):
        parser.error("--sources, --tokenizer and --out are needed")

    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    chosen = {
        "code": choose(code_documents(args.sources), lambda item: "all", lambda group: TRAIN_BYTES["code"]),
        "long_text": choose(long_documents(args.sources, tokenizer), lambda item: item.package,
                            lambda group: LONG_TEXT[group][2]),
        "multilingual": choose(manual_documents(args.sources), lambda item: item.language,
                               lambda group: TRAIN_BYTES["multilingual"]),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    for name, sides in chosen.items():
        if min(map(len, sides)) < 10:
            sys.exit(f"make_datasets.py: {name} has only {len(sides[0])} and {len(sides[1])} documents")
        for side, documents in zip(("train", "validation"), sides):
            write_lines(args.out / f"{name}.{side}.jsonl", documents)
    write_sources(args.out, args.sources, chosen)


if __name__ == "__main__":
    main()
