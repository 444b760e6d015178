#include "services/gateway/openai/json_body.h"

#include <algorithm>
#include <cmath>

#include "services/base/nearest.h"

namespace dex::gateway::openai {

namespace {

constexpr int kDeepest = 64;
constexpr size_t kMostNamed = 20;  // faults of one answer

std::string excerpt(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() <= 60) return text;
  size_t end = 57;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "…";
}

std::string range(int64_t least, int64_t most) {
  return "must be between " + std::to_string(least) + " and " + std::to_string(most);
}

// A whole number also where it is written as 3.0, as JavaScript's and Python's clients may do.
std::optional<int64_t> whole(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) > 9007199254740992.0) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

void Faults::add(std::string reason, std::string field, std::string what) {
  if (violations_.empty()) reason_ = std::move(reason);
  if (violations_.size() < kMostNamed) violations_.push_back({std::move(field), std::move(what)});
}

bool Faults::full() const {
  return violations_.size() >= kMostNamed;
}

base::Status Faults::status() const {
  if (violations_.empty()) return {};
  const auto& first = violations_.front();
  base::Status status = base::invalid_argument(reason_, first.field + " " + first.description);
  for (const auto& violation : violations_) {
    status = std::move(status).with_violation(violation.field, violation.description);
  }
  return status;
}

base::Result<json> parse_object(std::string_view body) {
  // Keys of the objects that are open, to notice one that comes twice: of two values one would be
  // ignored silently.
  std::vector<std::set<std::string>> open;
  std::string twice;
  bool too_deep = false;
  const auto look = [&](int depth, json::parse_event_t event, json& parsed) {
    too_deep = too_deep || depth > kDeepest;
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return depth <= kDeepest;
  };
  json value = json::parse(body, look, false);
  if (too_deep) return base::invalid_field("body", "the body has more than 64 levels of JSON");
  if (!twice.empty()) return base::invalid_field(twice, "the key '" + twice + "' comes twice");
  if (value.is_discarded()) {
    return base::invalid_field("body", "the body is no JSON; send one object as UTF-8 text");
  }
  if (!value.is_object()) {
    return base::invalid_field("body", "the body must be a JSON object, got " + excerpt(value));
  }
  return value;
}

std::string ObjectReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

const json* ObjectReader::take(std::string_view key) {
  known_.emplace(key);
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void ObjectReader::wrong_type(std::string_view key, std::string_view wanted, const json& got) {
  faults_.add("INVALID_FIELD", path_of(key),
              "must be " + std::string(wanted) + ", got " + excerpt(got));
}

std::optional<std::string> ObjectReader::text(std::string_view key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  wrong_type(key, "a string", *value);
  return std::nullopt;
}

std::string ObjectReader::required_text(std::string_view key) {
  const json* value = take(key);
  if (value != nullptr && !value->is_string()) {
    wrong_type(key, "a string", *value);
    return {};
  }
  if (value == nullptr || value->get_ref<const std::string&>().empty()) {
    faults_.add("MISSING_FIELD", path_of(key), "must be given");
    return {};
  }
  return value->get<std::string>();
}

std::optional<bool> ObjectReader::boolean(std::string_view key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  wrong_type(key, "true or false", *value);
  return std::nullopt;
}

std::optional<double> ObjectReader::number(std::string_view key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  wrong_type(key, "a number", *value);
  return std::nullopt;
}

std::optional<int64_t> ObjectReader::integer(std::string_view key, int64_t least, int64_t most) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  const auto number = whole(*value);
  if (!number) {
    wrong_type(key, "a whole number", *value);
    return std::nullopt;
  }
  if (*number >= least && *number <= most) return number;
  faults_.add("VALUE_OUT_OF_RANGE", path_of(key), range(least, most) + ", got " + excerpt(*value));
  return std::nullopt;
}

std::optional<std::vector<std::string>> ObjectReader::texts(std::string_view key, size_t most) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector<std::string>{value->get<std::string>()};
  const bool strings =
      value->is_array() &&
      std::all_of(value->begin(), value->end(), [](const json& v) { return v.is_string(); });
  if (!strings) {
    wrong_type(key, "a string or a list of strings", *value);
    return std::nullopt;
  }
  if (value->size() <= most) return value->get<std::vector<std::string>>();
  faults_.add(
      "VALUE_OUT_OF_RANGE", path_of(key),
      "takes at most " + std::to_string(most) + " strings, got " + std::to_string(value->size()));
  return std::nullopt;
}

std::optional<std::vector<int64_t>> ObjectReader::integers(std::string_view key, int64_t least,
                                                           int64_t most) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) {
    wrong_type(key, "a list of whole numbers", *value);
    return std::nullopt;
  }
  std::vector<int64_t> numbers;
  for (const json& item : *value) {
    const auto number = whole(item);
    if (!number || *number < least || *number > most) {
      faults_.add("VALUE_OUT_OF_RANGE", path_of(key) + "[" + std::to_string(numbers.size()) + "]",
                  range(least, most) + ", got " + excerpt(item));
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

void ObjectReader::accept(std::initializer_list<std::string_view> keys) {
  for (const auto key : keys) (void)take(key);
}

void ObjectReader::refuse(std::initializer_list<std::string_view> keys) {
  for (const auto key : keys) {
    if (take(key) != nullptr) unsupported(key, "is not supported by this server; leave it out");
  }
}

void ObjectReader::unsupported(std::string_view key, std::string what) {
  faults_.add("UNSUPPORTED_PARAMETER", path_of(key), std::move(what));
}

void ObjectReader::end() {
  for (const auto& [key, value] : object_.items()) {
    if (known_.contains(key)) continue;
    if (faults_.full()) return;  // looking for the nearest word is what costs
    const std::string near = nearest(key, known_);
    faults_.add("UNKNOWN_FIELD", path_of(key.substr(0, 100)),
                near.empty() ? "is not known" : "is not known; did you mean " + near + "?");
  }
}

std::string nearest(std::string_view word, const std::set<std::string, std::less<>>& candidates) {
  const std::vector<std::string_view> list(candidates.begin(), candidates.end());
  return std::string(base::nearest(word.substr(0, 100), list));
}

}  // namespace dex::gateway::openai
