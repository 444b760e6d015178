#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "services/data/json_line.h"

namespace dex::data {

// Private to this room: fills a JsonLine. Recursive, at most 32 levels deep.
class JsonParser {
 public:
  JsonParser(JsonLine& out, const std::function<void(JsonLine::Fault)>& on_fault)
      : out_(out), on_fault_(on_fault), text_(out.text_) {}

  bool run();

 private:
  using Kind = JsonLine::Kind;

  bool value();
  bool object();
  bool array();
  bool string();
  bool number();
  bool literal(std::string_view word, Kind kind);
  void check_duplicate_keys(size_t object);

  size_t open(Kind kind);   // starts a node at the current byte
  void close(size_t node);  // ends it before the current byte
  void skip_spaces();
  bool ended() const { return at_ >= text_.size(); }
  char peek() const { return ended() ? '\0' : text_[at_]; }

  // Reports invalid_json at the current byte and returns false.
  bool fail(std::string_view expected, bool in_string = false);
  void report(std::string_view code, size_t offset, std::string message, std::string hint = "");
  std::string path() const;

  struct Step {  // where in the value the parser stands
    bool in_object = false;
    size_t key_node = 0;  // in an object: the key of the member; 0 before the first one
    size_t item = 0;      // in an array
  };

  JsonLine& out_;
  const std::function<void(JsonLine::Fault)>& on_fault_;
  std::string_view text_;
  size_t at_ = 0;
  std::vector<Step> steps_;
};

}  // namespace dex::data
