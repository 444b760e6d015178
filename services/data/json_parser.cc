#include "services/data/json_parser.h"

#include <charconv>
#include <cmath>
#include <unordered_set>

#include "services/data/json_string.h"
#include "services/text/utf8.h"

namespace dex::data {

namespace {

constexpr size_t kMaxDepth = 32;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// What people write instead of JSON, and what to do about it.
std::string repair_hint(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("'"))
    return "JSON has double quotes only; write the rows with json.dumps, not str()";
  if (rest.starts_with("True") || rest.starts_with("False") || rest.starts_with("None")) {
    return "this is Python, not JSON: true, false and null; write the rows with json.dumps";
  }
  if (rest.starts_with("NaN") || rest.starts_with("Infinity") || rest.starts_with("-Infinity")) {
    return "JSON has no NaN and no infinity; write null or leave the key out";
  }
  if (rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with("#"))
    return "JSON has no comments";
  if (rest.starts_with("}") || rest.starts_with("]")) return "take the comma before it out";
  if (rest.starts_with("{")) return "one object a line: put this one on a line of its own";
  return "";
}

}  // namespace

bool JsonParser::run() {
  skip_spaces();
  if (!value()) return false;
  skip_spaces();
  if (!ended()) return fail("the end of the line");
  return true;
}

bool JsonParser::value() {
  switch (peek()) {
    case '{':
      return object();
    case '[':
      return array();
    case '"':
      return string();
    case 't':
      return literal("true", Kind::kBool);
    case 'f':
      return literal("false", Kind::kBool);
    case 'n':
      return literal("null", Kind::kNull);
    default:
      break;
  }
  if (peek() == '-' || is_digit(peek())) return number();
  return fail("a value");
}

bool JsonParser::object() {
  if (steps_.size() == kMaxDepth) {
    report("nesting_too_deep", at_, "more than 32 objects and arrays inside each other");
    return false;
  }
  const size_t node = open(Kind::kObject);
  ++at_;
  steps_.push_back({.in_object = true});
  skip_spaces();
  if (peek() == '}') {
    ++at_;
  } else {
    while (true) {
      if (peek() != '"') return fail("a key in double quotes");
      steps_.back().key_node = out_.nodes_.size();
      if (!string()) return false;
      skip_spaces();
      if (peek() != ':') return fail("':' after the key");
      ++at_;
      skip_spaces();
      if (!value()) return false;
      skip_spaces();
      if (peek() == '}') break;
      if (peek() != ',') return fail("',' or '}'");
      ++at_;
      skip_spaces();
    }
    ++at_;
  }
  close(node);
  steps_.pop_back();
  check_duplicate_keys(node);
  return true;
}

bool JsonParser::array() {
  if (steps_.size() == kMaxDepth) {
    report("nesting_too_deep", at_, "more than 32 objects and arrays inside each other");
    return false;
  }
  const size_t node = open(Kind::kArray);
  ++at_;
  steps_.emplace_back();
  skip_spaces();
  if (peek() == ']') {
    ++at_;
  } else {
    while (true) {
      if (!value()) return false;
      skip_spaces();
      if (peek() == ']') break;
      if (peek() != ',') return fail("',' or ']'");
      ++at_;
      ++steps_.back().item;
      skip_spaces();
    }
    ++at_;
  }
  close(node);
  steps_.pop_back();
  return true;
}

bool JsonParser::string() {
  const size_t node = open(Kind::kString);
  bool has_unicode_escape = false;
  for (++at_;; ++at_) {
    if (ended()) return fail("'\"' that ends the string", true);
    const char c = text_[at_];
    if (c == '"') break;
    if (static_cast<uint8_t>(c) < 0x20) {
      return fail(c == '\t' ? "\\t instead of a tab inside a string"
                            : "no control character inside a string");
    }
    if (c != '\\') continue;
    out_.nodes_[node].escaped = true;
    ++at_;
    if (ended()) return fail("a character after '\\'", true);
    if (text_[at_] == 'u') {
      if (text_.size() - at_ < 5) {
        at_ = text_.size();
        return fail("four hex digits after \\u", true);
      }
      if (hex4(text_.substr(at_ + 1)) < 0) return fail("four hex digits after \\u");
      has_unicode_escape = true;
    } else if (std::string_view("\"\\/bfnrt").find(text_[at_]) == std::string_view::npos) {
      return fail("one of \" \\ / b f n r t u after '\\'");
    }
  }
  ++at_;
  close(node);
  if (has_unicode_escape) {
    const size_t begin = out_.nodes_[node].begin + 1;
    decode_json_string(text_.substr(begin, at_ - 1 - begin), [&](size_t inside) {
      report("lone_surrogate", begin + inside,
             "half of a surrogate pair, " + std::string(text_.substr(begin + inside, 6)) +
                 ", is not a character",
             "the text was cut inside a character; write it as UTF-8 or as both halves");
    });
  }
  return true;
}

bool JsonParser::number() {
  const size_t node = open(Kind::kNumber);
  if (peek() == '-') ++at_;
  if (!is_digit(peek())) return fail("a digit");
  if (peek() == '0' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
    return fail("no zero in front of a number");
  }
  while (is_digit(peek())) ++at_;
  if (peek() == '.') {
    ++at_;
    if (!is_digit(peek())) return fail("a digit after '.'");
    while (is_digit(peek())) ++at_;
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    if (!is_digit(peek())) return fail("a digit in the exponent");
    while (is_digit(peek())) ++at_;
  }
  close(node);
  double number = 0;
  const char* begin = text_.data() + out_.nodes_[node].begin;
  const auto [end, error] = std::from_chars(begin, text_.data() + at_, number);
  if (error == std::errc() && std::isfinite(number)) return true;
  // Too small is as good as zero; too large is not a number that anybody meant.
  if (std::string_view(begin, end - begin).find("e-") != std::string_view::npos ||
      std::string_view(begin, end - begin).find("E-") != std::string_view::npos) {
    return true;
  }
  at_ = out_.nodes_[node].begin;
  return fail("a number below 1.8e308");
}

bool JsonParser::literal(std::string_view word, Kind kind) {
  if (!text_.substr(at_).starts_with(word)) {
    if (word.starts_with(text_.substr(at_))) at_ = text_.size();  // cut off inside it
    return fail("true, false or null");
  }
  const size_t node = open(kind);
  at_ += word.size();
  close(node);
  return true;
}

// Decoded keys are compared: "a" and "\u0061" are one key. Few keys: by eye; many: by hash, or a
// line of a million keys would take for ever.
void JsonParser::check_duplicate_keys(size_t object) {
  std::vector<std::pair<std::string, size_t>> keys;
  for (size_t key = object + 1; key < out_.nodes_[object].next;) {
    keys.emplace_back(JsonLine::Value(&out_, key).string(), key);
    key = out_.nodes_[out_.nodes_[key].next].next;
  }
  const auto duplicate = [&](const std::pair<std::string, size_t>& key) {
    steps_.push_back({.in_object = true, .key_node = key.second});
    report("duplicate_key", out_.nodes_[key.second].begin,
           "the key \"" + key.first.substr(0, 80) + "\" comes twice in one object",
           "readers differ in which of the two counts; keep one");
    steps_.pop_back();
  };
  if (keys.size() <= 16) {
    for (size_t i = 1; i < keys.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (keys[i].first != keys[j].first) continue;
        duplicate(keys[i]);
        break;
      }
    }
    return;
  }
  std::unordered_set<std::string_view> seen;
  for (const auto& key : keys) {
    if (!seen.insert(key.first).second) duplicate(key);
  }
}

size_t JsonParser::open(Kind kind) {
  out_.nodes_.push_back({static_cast<uint32_t>(at_), 0, 0, kind, false});
  return out_.nodes_.size() - 1;
}

void JsonParser::close(size_t node) {
  out_.nodes_[node].end = static_cast<uint32_t>(at_);
  out_.nodes_[node].next = static_cast<uint32_t>(out_.nodes_.size());
}

void JsonParser::skip_spaces() {
  while (!ended() &&
         (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n'))
    ++at_;
}

bool JsonParser::fail(std::string_view expected, bool in_string) {
  const size_t column = text::count_characters(text_.substr(0, at_)) + 1;
  std::string found = "the end of the line";
  if (!ended()) {
    const auto byte = static_cast<uint8_t>(text_[at_]);
    size_t size = 1;
    while (at_ + size < text_.size() && (static_cast<uint8_t>(text_[at_ + size]) & 0xC0) == 0x80)
      ++size;
    found = byte < 0x20 ? "a control character" : "'" + std::string(text_.substr(at_, size)) + "'";
  }
  JsonLine::Fault fault;
  fault.code = "invalid_json";
  fault.offset = at_;
  fault.path = path();
  fault.message = "column " + std::to_string(column) + ": expected " + std::string(expected) +
                  ", found " + found;
  fault.hint = ended() ? "" : repair_hint(text_, at_);
  fault.at_end = ended();
  fault.in_string = in_string;
  on_fault_(std::move(fault));
  return false;
}

void JsonParser::report(std::string_view code, size_t offset, std::string message,
                        std::string hint) {
  JsonLine::Fault fault;
  fault.code = code;
  fault.offset = offset;
  fault.path = path();
  fault.message = std::move(message);
  fault.hint = std::move(hint);
  on_fault_(std::move(fault));
}

std::string JsonParser::path() const {
  std::string path = "$";
  for (const Step& step : steps_) {
    if (!step.in_object) {
      path += "[" + std::to_string(step.item) + "]";
    } else if (step.key_node != 0 && out_.nodes_[step.key_node].end != 0) {
      path += "." + JsonLine::Value(&out_, step.key_node).string().substr(0, 80);
    }
  }
  return path;
}

}  // namespace dex::data
