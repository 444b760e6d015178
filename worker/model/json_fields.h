#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dex::model {

// Strict reading of one JSON object: every failure throws "[op] <source>: key …, expected …, found
// …". Holds the object by reference.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string op, std::string source);

  [[nodiscard]] bool has(const std::string& key) const;  // present and not null
  // Readers check as they read, so a value that nobody needs may be dropped.
  [[nodiscard]] const nlohmann::json& raw(const std::string& key) const;
  std::string text(const std::string& key) const;
  bool boolean(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t low, int64_t high) const;
  double number(const std::string& key) const;  // finite
  JsonFields object(const std::string& key) const;
  // Refuses keys that are not in the list.
  void allow_only(const std::vector<std::string_view>& keys) const;

  [[noreturn]] void fail(const std::string& key, const std::string& expected,
                         const std::string& found) const;

 private:
  const nlohmann::json& object_;
  std::string op_;
  std::string source_;
};

// Parses strict JSON text of an object, nested at most 32 deep; duplicate keys are refused. Throws
// as JsonFields.
nlohmann::json parse_object(std::string_view text, const std::string& op,
                            const std::string& source);

}  // namespace dex::model
