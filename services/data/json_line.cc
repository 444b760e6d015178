#include "services/data/json_line.h"

#include <charconv>
#include <cmath>

#include "services/data/json_parser.h"
#include "services/data/json_string.h"

namespace dex::data {

bool JsonLine::parse(std::string_view line, const std::function<void(Fault)>& on_fault) {
  text_ = line;
  nodes_.clear();
  return JsonParser(*this, on_fault).run();
}

std::string_view JsonLine::Value::raw() const {
  return line_->text_.substr(node().begin, node().end - node().begin);
}

std::string JsonLine::Value::string() const {
  const std::string_view inside = raw().substr(1, raw().size() - 2);
  return node().escaped ? decode_json_string(inside) : std::string(inside);
}

double JsonLine::Value::number() const {
  double value = 0;
  std::from_chars(raw().data(), raw().data() + raw().size(), value);
  return value;
}

std::optional<int64_t> JsonLine::Value::integer() const {
  int64_t value = 0;
  const char* end = raw().data() + raw().size();
  const auto [stop, error] = std::from_chars(raw().data(), end, value);
  if (error == std::errc() && stop == end) return value;
  const double number = this->number();  // 1.0 and 1e3 are whole numbers too
  if (std::abs(number) > 9e15 || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

void JsonLine::Value::for_each_member(
    const std::function<void(std::string_view, Value)>& visit) const {
  for (size_t key = index_ + 1; key < node().next;) {
    const size_t value = line_->nodes_[key].next;
    visit(Value(line_, key).string(), Value(line_, value));
    key = line_->nodes_[value].next;
  }
}

void JsonLine::Value::for_each_item(const std::function<void(size_t, Value)>& visit) const {
  size_t position = 0;
  for (size_t item = index_ + 1; item < node().next; item = line_->nodes_[item].next) {
    visit(position++, Value(line_, item));
  }
}

std::optional<JsonLine::Value> JsonLine::Value::find(std::string_view wanted) const {
  std::optional<Value> found;
  for_each_member([&](std::string_view key, Value value) {
    if (key == wanted && !found) found = value;
  });
  return found;
}

size_t JsonLine::Value::size() const {
  size_t count = 0;
  for_each_item([&](size_t, Value) { ++count; });
  return count;
}

std::string_view describe(JsonLine::Kind kind) {
  switch (kind) {
    case JsonLine::Kind::kNull:
      return "null";
    case JsonLine::Kind::kBool:
      return "true or false";
    case JsonLine::Kind::kNumber:
      return "a number";
    case JsonLine::Kind::kString:
      return "a string";
    case JsonLine::Kind::kArray:
      return "an array";
    case JsonLine::Kind::kObject:
      return "an object";
  }
  return "";
}

}  // namespace dex::data
