#include "services/data/row_parser.h"

#include <algorithm>
#include <array>

#include "services/base/nearest.h"
#include "services/base/sha256.h"
#include "services/data/text_scan.h"

namespace dex::data {

namespace {

using Kind = JsonLine::Kind;
using text::RowFormat;

constexpr std::string_view kCommonKeys[] = {"id", "tag", "language"};

std::vector<std::string_view> keys_of(RowFormat format) {
  std::vector<std::string_view> keys(std::begin(kCommonKeys), std::end(kCommonKeys));
  switch (format) {
    case RowFormat::kChat:
      keys.insert(keys.end(), {"messages"});
      break;
    case RowFormat::kPromptCompletion:
      keys.insert(keys.end(), {"prompt", "completion"});
      break;
    case RowFormat::kText:
      keys.insert(keys.end(), {"text"});
      break;
    case RowFormat::kTokens:
      keys.insert(keys.end(), {"input_ids", "labels", "loss_weights"});
      break;
  }
  return keys;
}

// Rows of other programs, by a key that gives them away, and how to turn them into ours.
struct Foreign {
  std::string_view key;
  std::string_view hint;
};
constexpr Foreign kForeign[] = {
    {"conversations",
     "ShareGPT rows: jq -c '{messages: [.conversations[] | {role: ({human: \"user\", gpt: "
     "\"assistant\"}[.from] // "
     ".from), content: .value}]}' IN > OUT"},
    {"instruction",
     "Alpaca rows: jq -c '{prompt: (.instruction + \"\\n\" + (.input // \"\")), completion: "
     ".output}' IN > OUT"},
    {"question", "jq -c '{prompt: .question, completion: .answer}' IN > OUT"},
    {"content", "jq -c '{text: .content}' IN > OUT"},
    {"tokens", "jq -c '{input_ids: .tokens, labels: .tokens}' IN > OUT"},
};

}  // namespace

RowParser::RowParser(std::optional<RowFormat> format, Findings& findings)
    : format_(format), findings_(findings) {}

RowParser::Outcome RowParser::parse(int64_t number, int64_t byte_offset, std::string_view line,
                                    bool hold_cut_off) {
  number_ = number, byte_offset_ = byte_offset, line_ = line;
  const int64_t errors_before = findings_.errors();
  Outcome outcome;
  const bool parsed = json_.parse(line, [&](JsonLine::Fault fault) {
    if (hold_cut_off && fault.at_end) {
      outcome.kind = Kind::kCutOff;
      outcome.cut = std::move(fault);
    } else {
      report(number, byte_offset, line, fault);
    }
  });
  if (!parsed) return outcome;
  const Value root = json_.root();
  if (!root.is(JsonLine::Kind::kObject)) {
    error("not_an_object", root, "$",
          "the line is " + std::string(describe(root.kind())) +
              ", expected an object such as {\"text\": \"…\"}");
    return outcome;
  }
  const bool first = !seen_row_;
  if (first && is_header(root)) {
    seen_row_ = true;
    outcome.kind = Kind::kHeader;
    return outcome;
  }
  seen_row_ = true;
  const auto format = format_of(root);
  if (!format) return outcome;
  Row row;
  row.line = number, row.byte_offset = byte_offset;
  row.content.format = *format;
  read_common(root, row);
  read_content_of(root, row);
  if (findings_.errors() > errors_before) return outcome;
  format_ = format;
  outcome.kind = Kind::kRow;
  outcome.row = std::move(row);
  return outcome;
}

void RowParser::report(int64_t number, int64_t byte_offset, std::string_view line,
                       const JsonLine::Fault& fault, std::string_view code, std::string hint) {
  number_ = number, byte_offset_ = byte_offset, line_ = line;
  add(Severity::kError, code.empty() ? fault.code : code, fault.offset, fault.path, fault.message,
      hint.empty() ? fault.hint : std::move(hint));
}

bool RowParser::is_header(Value root) {
  const auto hash = root.find("tokenizer_sha256");
  if (!hash || root.find("input_ids")) return false;
  if (!hash->is(JsonLine::Kind::kString) || !base::is_sha256_hex(hash->string())) {
    error("wrong_type", *hash, "$.tokenizer_sha256",
          "tokenizer_sha256 must be the SHA-256 of the tokenizer.json, 64 lower-case hex digits",
          "sha256sum tokenizer.json");
    return true;
  }
  tokenizer_sha256_ = hash->string();
  seen_format_ = true;
  if (!format_) format_ = RowFormat::kTokens;
  return true;
}

// The row's format by its keys; reports and returns nullopt if it has none or not the file's.
std::optional<RowFormat> RowParser::format_of(Value root) {
  std::optional<RowFormat> own;
  const auto has = [&](std::string_view key) { return root.find(key).has_value(); };
  if (has("messages")) {
    own = RowFormat::kChat;
  } else if (has("prompt") || has("completion")) {
    own = RowFormat::kPromptCompletion;
  } else if (has("input_ids")) {
    own = RowFormat::kTokens;
  } else if (has("text")) {
    own = RowFormat::kText;
  }
  if (own) seen_format_ = true;
  if (!own) {
    report_unknown_format(root);
    return std::nullopt;
  }
  // A row that also has the keys of the file's format is of that format, with keys too many.
  const auto is_key = [&](RowFormat format) {
    return format == RowFormat::kText     ? has("text")
           : format == RowFormat::kTokens ? has("input_ids")
           : format == RowFormat::kChat   ? has("messages")
                                          : has("prompt") || has("completion");
  };
  if (format_ && is_key(*format_)) return format_;
  if (format_ && *own != *format_) {
    error("mixed_format", root, "$",
          "a row of format " + std::string(name(*own)) + " in a file of format " +
              std::string(name(*format_)),
          "one format a file: put rows of each format into a file of their own");
    return std::nullopt;
  }
  return own;
}

void RowParser::report_unknown_format(Value root) {
  std::string keys, hint;
  root.for_each_member([&](std::string_view key, Value) {
    if (keys.size() < 200)
      keys += (keys.empty() ? "\"" : ", \"") + std::string(key.substr(0, 40)) + "\"";
  });
  for (const Foreign& foreign : kForeign) {
    if (hint.empty() && root.find(foreign.key)) hint = foreign.hint;
  }
  if (unknown_line_ == 0) unknown_line_ = number_, unknown_keys_ = keys;
  std::string expected = "\"messages\", \"prompt\" and \"completion\", \"text\", or \"input_ids\"";
  if (format_) {
    switch (*format_) {
      case RowFormat::kChat:
        expected = "\"messages\"";
        break;
      case RowFormat::kPromptCompletion:
        expected = "\"prompt\" and \"completion\"";
        break;
      case RowFormat::kText:
        expected = "\"text\"";
        break;
      case RowFormat::kTokens:
        expected = "\"input_ids\" with \"labels\" or \"loss_weights\"";
        break;
    }
  }
  error("missing_key", root, "$",
        "found " + (keys.empty() ? std::string("no key") : "the keys " + keys) + ", expected " +
            expected,
        hint);
}

void RowParser::read_common(Value root, Row& row) {
  const auto known = keys_of(row.content.format);
  root.for_each_member([&](std::string_view key, Value value) {
    std::string* target = key == "id"         ? &row.id
                          : key == "tag"      ? &row.tag
                          : key == "language" ? &row.language
                                              : nullptr;
    if (target != nullptr) {
      if (value.is(JsonLine::Kind::kString)) {
        *target = value.string();
      } else if (key == "id" && value.is(JsonLine::Kind::kNumber)) {
        *target = value.raw();
      } else {
        error("wrong_type", value, "$." + std::string(key),
              std::string(key) + " is " + std::string(describe(value.kind())) +
                  ", expected a string");
      }
    } else if (std::ranges::find(known, key) == known.end()) {
      const std::string_view close = base::nearest(key, known);
      warning("unknown_key", value, "$." + std::string(key.substr(0, 80)),
              "the key \"" + std::string(key.substr(0, 80)) + "\" is not used by rows of format " +
                  std::string(name(row.content.format)),
              close.empty() ? "" : "did you mean \"" + std::string(close) + "\"?");
    }
  });
}

void RowParser::read_content_of(Value root, Row& row) {
  switch (row.content.format) {
    case RowFormat::kChat:
      return read_chat(root, row);
    case RowFormat::kPromptCompletion:
      return read_pair(root, row);
    case RowFormat::kText:
      return read_text(root, row);
    case RowFormat::kTokens:
      return read_tokens(root, row);
  }
}

void RowParser::read_pair(Value root, Row& row) {
  if (auto prompt = read_string(root, "prompt", true)) row.content.prompt = std::move(*prompt);
  if (auto completion = read_string(root, "completion", false))
    row.content.completion = std::move(*completion);
  row.text_bytes = static_cast<int64_t>(row.content.prompt.size() + row.content.completion.size());
}

void RowParser::read_text(Value root, Row& row) {
  if (auto text = read_string(root, "text", false)) row.content.text = std::move(*text);
  row.text_bytes = static_cast<int64_t>(row.content.text.size());
}

std::optional<std::string> RowParser::read_string(Value root, std::string_view key,
                                                  bool may_be_empty) {
  const std::string path = "$." + std::string(key);
  const auto value = root.find(key);
  if (!value) {
    error("missing_key", root, path, "the key \"" + std::string(key) + "\" is missing");
    return std::nullopt;
  }
  if (!value->is(JsonLine::Kind::kString)) {
    error("wrong_type", *value, path,
          std::string(key) + " is " + std::string(describe(value->kind())) + ", expected a string");
    return std::nullopt;
  }
  std::string text = value->string();
  if (!may_be_empty && text.find_first_not_of(" \t\r\n") == std::string::npos) {
    error("empty_content", *value, path,
          std::string(key) + (text.empty() ? " is empty" : " is only white space"));
    return std::nullopt;
  }
  scan(path, *value, text);
  return text;
}

void RowParser::scan(const std::string& path, Value value, std::string_view text) {
  scan_text(text, [&](const TextMark& mark) {
    const std::string found(text.substr(mark.begin, std::min<size_t>(mark.size, 40)));
    // Where there are no escapes, a byte of the text is a byte of the line; else the first place
    // that looks so.
    const bool verbatim = value.raw().size() == text.size() + 2;
    const size_t place =
        verbatim ? 1 + mark.begin : value.raw().find(text.substr(mark.begin, mark.size));
    const size_t offset = value.offset() + (place == std::string_view::npos ? 0 : place);
    if (mark.code == "special_token_in_text") {
      add(Severity::kWarning, mark.code, offset, path,
          "\"" + found + "\" looks like a special token; a tokenizer that knows it makes it one",
          "leave it out, or turn it into a chat and let the template write it");
    } else if (mark.code == "replacement_character") {
      add(Severity::kWarning, mark.code, offset, path,
          "the text holds U+FFFD, which stands for characters that an earlier conversion lost",
          "convert the original again, with its true encoding");
    } else {
      // Never shown again: findings are stored and logged.
      findings_.add(mark.code, Severity::kWarning, [&] {
        return Finding{.line = number_,
                       .byte_offset = byte_offset_ + static_cast<int64_t>(offset),
                       .json_path = path,
                       .message = "this looks like a secret (" + std::string(mark.what) + ")",
                       .hint = "models repeat what they learn: take it out and revoke it",
                       .excerpt = found.substr(0, 4) + "…"};
      });
    }
  });
}

void RowParser::error(std::string_view code, Value at, std::string path, std::string message,
                      std::string hint) {
  add(Severity::kError, code, at.offset(), std::move(path), std::move(message), std::move(hint));
}

void RowParser::warning(std::string_view code, Value at, std::string path, std::string message,
                        std::string hint) {
  add(Severity::kWarning, code, at.offset(), std::move(path), std::move(message), std::move(hint));
}

void RowParser::add(Severity severity, std::string_view code, size_t offset, std::string path,
                    std::string message, std::string hint) {
  findings_.add(code, severity, [&] {
    return Finding{.line = number_,
                   .byte_offset = byte_offset_ + static_cast<int64_t>(offset),
                   .json_path = std::move(path),
                   .message = std::move(message),
                   .hint = std::move(hint),
                   .excerpt = excerpt(line_, offset)};
  });
}

}  // namespace dex::data
