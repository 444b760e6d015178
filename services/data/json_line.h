#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dex::data {

// One line of JSON (RFC 8259, strictly), kept as a list of nodes that point into the line: 16 bytes
// a value, so that the memory of the most crowded line is a small multiple of it, and every value
// knows its place. Written here because a finding needs the byte and the path of each fault, and
// reading goes on after some.
class JsonLine {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  struct Fault {
    std::string_view code;  // invalid_json, duplicate_key, nesting_too_deep or lone_surrogate
    size_t offset = 0;      // in the line
    std::string path;
    std::string message;
    std::string hint;
    bool at_end = false;     // the text stops too early, between two tokens or inside one
    bool in_string = false;  // … inside a string
  };

 private:
  struct Node {
    uint32_t begin, end;  // bytes of the line
    uint32_t next;        // index of the first node that is not inside this one
    Kind kind;
    bool escaped;  // a string with backslashes
  };

 public:
  // A value of the line. Cheap to copy; valid while line and JsonLine are.
  class Value {
   public:
    Kind kind() const { return node().kind; }
    bool is(Kind kind) const { return node().kind == kind; }
    size_t offset() const { return node().begin; }
    std::string_view raw() const;  // as written
    // Decoded; only of strings. A lone surrogate became U+FFFD.
    std::string string() const;
    double number() const;                   // only of numbers
    std::optional<int64_t> integer() const;  // nullopt: has a fraction or does not fit
    // Calls with key and value of each member, in order; only of objects.
    void for_each_member(const std::function<void(std::string_view, Value)>& visit) const;
    // The items of an array.
    void for_each_item(const std::function<void(size_t, Value)>& visit) const;
    std::optional<Value> find(std::string_view key) const;
    size_t size() const;  // of an array: items

   private:
    friend class JsonLine;
    friend class JsonParser;
    Value(const JsonLine* line, size_t index) : line_(line), index_(index) {}
    const Node& node() const { return line_->nodes_[index_]; }
    const JsonLine* line_;
    size_t index_;
  };

  // Parses `line`, which must outlive the use of root(). Faults go to `on_fault` in order; after
  // invalid_json or nesting_too_deep (more than 32 levels) there is no root. False: no root. At
  // most 4 GiB.
  bool parse(std::string_view line, const std::function<void(Fault)>& on_fault);
  Value root() const { return {this, 0}; }

 private:
  friend class JsonParser;
  std::string_view text_;
  std::vector<Node> nodes_;  // an object's members: key, value, key, value …
};

// "string", "an array" …: what a message calls a value.
std::string_view describe(JsonLine::Kind kind);

}  // namespace dex::data
