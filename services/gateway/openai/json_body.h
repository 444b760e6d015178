#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"

// Reads the JSON of requests strictly (api.md §1, strictness): what is not known is refused by
// name, what is known is checked, and all faults of a body come in one answer. Pure.
namespace dex::gateway::openai {

using nlohmann::json;

// Everything that is wrong with a request. Not thread-safe.
class Faults {
 public:
  // `reason` as in api.md §1 ("UNKNOWN_FIELD"); the message to read is "<field> <what>".
  void add(std::string reason, std::string field, std::string what);
  [[nodiscard]] bool empty() const { return violations_.empty(); }
  [[nodiscard]] bool full() const;  // what is added now is not told any more
  // INVALID_ARGUMENT with the first fault's reason and every violation, or OK.
  [[nodiscard]] base::Status status() const;

 private:
  std::string reason_;  // of the first
  std::vector<base::FieldViolation> violations_;
};

// The object that a body is: INVALID_FIELD for text that is no JSON, for another kind of value, for
// a key that an object has twice and for more than 64 levels.
base::Result<json> parse_object(std::string_view body);

// One object of a request. Each key is asked for once; end() then refuses those that nobody asked
// for. A null counts as absent, as the openai package sends it for what was not given.
class ObjectReader {
 public:
  // `path` stands before the keys in messages: "" or "method.dex". Both outlive this object.
  ObjectReader(const json& object, std::string path, Faults& faults)
      : object_(object), path_(std::move(path)), faults_(faults) {}

  const json* take(std::string_view key);  // null: absent
  std::optional<std::string> text(std::string_view key);
  std::string required_text(std::string_view key);  // MISSING_FIELD, also when empty
  std::optional<bool> boolean(std::string_view key);
  std::optional<double> number(std::string_view key);  // finite
  std::optional<int64_t> integer(std::string_view key, int64_t least, int64_t most);
  // A string, or a list of at most `most` of them.
  std::optional<std::vector<std::string>> texts(std::string_view key, size_t most);
  // Numbers within `least` and `most`.
  std::optional<std::vector<int64_t>> integers(std::string_view key, int64_t least, int64_t most);
  // Fields of OpenAI's that can have no effect here, whatever they hold (api.md §7).
  void accept(std::initializer_list<std::string_view> keys);
  // Fields of OpenAI's that this server does not have: UNSUPPORTED_PARAMETER unless absent.
  void refuse(std::initializer_list<std::string_view> keys);
  void unsupported(std::string_view key, std::string what);

  // UNKNOWN_FIELD for every key that was not asked for, with the nearest known name.
  void end();

  [[nodiscard]] std::string path_of(std::string_view key) const;
  [[nodiscard]] Faults& faults() const { return faults_; }

 private:
  void wrong_type(std::string_view key, std::string_view wanted, const json& got);

  const json& object_;
  const std::string path_;
  Faults& faults_;
  std::set<std::string, std::less<>> known_;
};

// base::nearest, of a set.
std::string nearest(std::string_view word, const std::set<std::string, std::less<>>& candidates);

}  // namespace dex::gateway::openai
