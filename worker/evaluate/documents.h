#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace dex::evaluate {

// A text to measure a language model on. In a raw file it is the whole file.
struct TextDocument {
  int64_t line = 0;  // where it begins, from 1
  std::string text;
  std::string tag, language;  // as a JSONL row gave them; empty: absent
};

struct TextFile {
  std::vector<TextDocument> documents;
  bool raw = false;  // one document, and the file knows no others
};

enum class TextFormat { kAuto, kRaw, kJsonl };

// Reads texts: plain text as WikiText-2 (wiki.train.tokens, wiki.test.raw) and Penn Treebank
// (ptb.train.txt) are published, byte for byte; or JSON Lines {"text", "tag"?, "language"?}, a row
// a document. kAuto: JSON Lines when the name ends in .jsonl or .json. Throws std::runtime_error
// with every faulty line.
TextFile read_texts(const std::filesystem::path& path, TextFormat format = TextFormat::kAuto);

}  // namespace dex::evaluate
