#include "worker/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace dex::model {

namespace {

constexpr size_t kMaxTensors = 100'000;
constexpr size_t kMaxRank = 8;
constexpr std::string_view kMetadata = "__metadata__";

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 10> kTypes{
    {{"F64", at::kDouble},
     {"F32", at::kFloat},
     {"F16", at::kHalf},
     {"BF16", at::kBFloat16},
     {"I64", at::kLong},
     {"I32", at::kInt},
     {"I16", at::kShort},
     {"I8", at::kChar},
     {"U8", at::kByte},
     {"BOOL", at::kBool}}};

std::string cut(const std::string& text) {
  return text.size() <= 80 ? text : text.substr(0, 80) + "…";
}

// Builds the header straight from parser events: one pass, no tree, so a hostile header costs no
// more memory than it has bytes, and duplicate keys are seen. Levels: 1 names, 2 fields of a tensor
// or metadata, 3 numbers.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}
  std::string problem;

  bool start_object(std::size_t) override {
    if (level_ == 0 || (level_ == 1 && have_name_)) {
      ++level_;
      keys_.emplace_back();
      return true;
    }
    return refuse("an object where there must be none");
  }
  bool end_object() override {
    keys_.pop_back();
    if (--level_ == 1) return finish_entry();
    return true;
  }
  bool start_array(std::size_t) override {
    if (level_ != 2 || in_metadata() || (field_ != "shape" && field_ != "data_offsets")) {
      return refuse("an array where there must be none");
    }
    level_ = 3;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    level_ = 2;
    (field_ == "shape" ? shape_ : offsets_) = numbers_;
    return true;
  }
  bool key(string_t& text) override {
    if (!keys_.back().insert(text).second) return refuse("duplicate key \"" + cut(text) + "\"");
    if (level_ == 1) {
      name_ = text;
      have_name_ = true;
      dtype_.reset();
      shape_.reset();
      offsets_.reset();
      if (header_.tensors.size() >= kMaxTensors) return refuse("more than 100000 tensors");
      return true;
    }
    field_ = text;
    if (in_metadata() || field_ == "dtype" || field_ == "shape" || field_ == "data_offsets")
      return true;
    return refuse("unknown field \"" + cut(field_) + "\"");
  }
  bool string(string_t& text) override {
    if (level_ == 2 && in_metadata()) return header_.metadata.emplace(field_, text), true;
    if (level_ != 2 || field_ != "dtype") return refuse("a string where there must be none");
    for (const auto& [known, type] : kTypes) {
      if (known == text) dtype_ = type;
    }
    return dtype_ || refuse("unknown dtype \"" + cut(text) + "\"");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != 3) return refuse("a number where there must be none");
    if (value > static_cast<uint64_t>(INT64_MAX))
      return refuse("number " + std::to_string(value) + " is too large");
    if (numbers_.size() >= kMaxRank) return refuse("rank above 8");
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t value) override {
    return refuse("negative number " + std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse("\"" + cut(text) + "\" is not an integer");
  }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("true or false"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (problem.empty())
      problem = "header is not valid JSON in UTF-8 at byte " + std::to_string(at);
    return false;
  }

 private:
  [[nodiscard]] bool in_metadata() const { return name_ == kMetadata; }

  bool refuse(const std::string& what) {
    problem = have_name_ ? "tensor \"" + cut(name_) + "\": " + what : "header: " + what;
    return false;
  }

  bool finish_entry() {
    if (in_metadata()) return true;
    if (!dtype_ || !shape_ || !offsets_) return refuse("dtype, shape and data_offsets are needed");
    if (offsets_->size() != 2) return refuse("data_offsets must be two numbers");
    TensorInfo info;
    info.dtype = *dtype_;
    info.shape = *shape_;
    info.begin = static_cast<uint64_t>((*offsets_)[0]);
    info.end = static_cast<uint64_t>((*offsets_)[1]);
    if (info.begin > info.end) {
      return refuse("data_offsets end before they begin: " + std::to_string(info.begin) + ", " +
                    std::to_string(info.end));
    }
    // The strides too, which an extent of 0 does not make smaller.
    uint64_t bytes = c10::elementSize(info.dtype);
    int64_t strides = static_cast<int64_t>(bytes);
    for (const int64_t extent : info.shape) {
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes) ||
          __builtin_mul_overflow(strides, std::max<int64_t>(extent, 1), &strides)) {
        return refuse("shape's product does not fit 64 bits");
      }
    }
    if (bytes != info.end - info.begin) {
      return refuse("shape and dtype need " + std::to_string(bytes) + " bytes, data_offsets span " +
                    std::to_string(info.end - info.begin));
    }
    header_.tensors.emplace(name_, std::move(info));
    return true;
  }

  SafetensorsHeader& header_;
  int level_ = 0;
  std::string name_, field_;
  bool have_name_ = false;
  std::optional<at::ScalarType> dtype_;
  std::optional<std::vector<int64_t>> shape_, offsets_;
  std::vector<int64_t> numbers_;
  std::vector<std::set<std::string>> keys_;
};

// Sorted by place, each tensor must begin where the last one ended, and the last end is the end of
// the file.
void require_contiguous(const SafetensorsHeader& header, uint64_t data_bytes,
                        const std::string& source) {
  std::vector<std::pair<const TensorInfo*, const std::string*>> order;
  for (const auto& [name, info] : header.tensors) order.emplace_back(&info, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  uint64_t end = 0;
  for (const auto& [info, name] : order) {
    if (info->begin != end) {
      fail_safetensors(source, "tensor \"" + cut(*name) +
                                   "\": " + (info->begin > end ? "hole" : "overlap") +
                                   ", begins at " + std::to_string(info->begin) + ", expected " +
                                   std::to_string(end));
    }
    end = info->end;
  }
  if (end != data_bytes) {
    fail_safetensors(source, "tensors end at byte " + std::to_string(end) +
                                 " of the data, the file holds " + std::to_string(data_bytes));
  }
}

}  // namespace

void fail_safetensors(const std::string& source, const std::string& what) {
  throw std::runtime_error("[safetensors] " + source + ": " + what);
}

const char* dtype_name(at::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (known == type) return name.data();
  }
  return nullptr;
}

uint64_t checked_header_length(uint64_t length, uint64_t file_bytes, const std::string& source) {
  if (length > kMaxHeaderBytes) {
    fail_safetensors(source, "header length must be at most 16 MiB, got " + std::to_string(length));
  }
  if (length > file_bytes - kLengthBytes) {
    fail_safetensors(source, "header of " + std::to_string(length) + " bytes in a file of " +
                                 std::to_string(file_bytes));
  }
  return length;
}

SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes,
                               const std::string& source) {
  if (json.empty() || json.front() != '{') fail_safetensors(source, "header must start with {");
  SafetensorsHeader header;
  HeaderReader reader(header);
  const bool good = nlohmann::json::sax_parse(json, &reader);
  if (!good || !reader.problem.empty()) fail_safetensors(source, reader.problem);
  require_contiguous(header, data_bytes, source);
  return header;
}

}  // namespace dex::model
