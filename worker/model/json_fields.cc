#include "worker/model/json_fields.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

namespace dex::model {

namespace {

constexpr int kDeepest = 32;

// Counts what nlohmann's own tree builder lets pass: duplicate keys and depth.
class Guard : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;

  bool start_object(std::size_t) override { return enter(), push(); }
  bool end_object() override {
    keys_.pop_back();
    return leave();
  }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) problem = "duplicate key \"" + name + "\"";
    return problem.empty();
  }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem = "not JSON at byte " + std::to_string(at);
    return false;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return false; }

 private:
  bool enter() {
    if (++depth_ > kDeepest) problem = "nested deeper than " + std::to_string(kDeepest);
    return problem.empty();
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool push() {
    keys_.emplace_back();
    return problem.empty();
  }
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

nlohmann::json parse_object(std::string_view text, const std::string& op,
                            const std::string& source) {
  Guard guard;
  const bool good = nlohmann::json::sax_parse(text, &guard);
  if (!good || !guard.problem.empty()) {
    throw std::runtime_error("[" + op + "] " + source + ": " +
                             (guard.problem.empty() ? "not JSON" : guard.problem));
  }
  nlohmann::json json = nlohmann::json::parse(text);
  if (!json.is_object()) {
    throw std::runtime_error("[" + op + "] " + source + ": expected a JSON object, found " +
                             json.type_name());
  }
  return json;
}

JsonFields::JsonFields(const nlohmann::json& object, std::string op, std::string source)
    : object_(object), op_(std::move(op)), source_(std::move(source)) {}

bool JsonFields::has(const std::string& key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

const nlohmann::json& JsonFields::raw(const std::string& key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) fail(key, "a value", "nothing");
  return *found;
}

std::string JsonFields::text(const std::string& key) const {
  const auto& value = raw(key);
  if (!value.is_string()) fail(key, "a string", value.dump().substr(0, 60));
  return value.get<std::string>();
}

bool JsonFields::boolean(const std::string& key) const {
  const auto& value = raw(key);
  if (!value.is_boolean()) fail(key, "true or false", value.dump().substr(0, 60));
  return value.get<bool>();
}

int64_t JsonFields::integer(const std::string& key, int64_t low, int64_t high) const {
  const auto& value = raw(key);
  const std::string range = "an integer in " + std::to_string(low) + "…" + std::to_string(high);
  if (!value.is_number_integer()) fail(key, range, value.dump().substr(0, 60));
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    fail(key, range, value.dump());
  }
  const auto number = value.get<int64_t>();
  if (number < low || number > high) fail(key, range, std::to_string(number));
  return number;
}

double JsonFields::number(const std::string& key) const {
  const auto& value = raw(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    fail(key, "a finite number", value.dump().substr(0, 60));
  }
  return value.get<double>();
}

JsonFields JsonFields::object(const std::string& key) const {
  const auto& value = raw(key);
  if (!value.is_object()) fail(key, "an object", value.dump().substr(0, 60));
  return {value, op_, source_ + ": " + key};
}

void JsonFields::allow_only(const std::vector<std::string_view>& keys) const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) fail(key, "no such key", "it");
  }
}

void JsonFields::fail(const std::string& key, const std::string& expected,
                      const std::string& found) const {
  throw std::runtime_error("[" + op_ + "] " + source_ + ": key \"" + key + "\", expected " +
                           expected + ", found " + found);
}

}  // namespace dex::model
