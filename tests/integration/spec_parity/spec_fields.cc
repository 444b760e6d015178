#include "tests/integration/spec_parity/spec_fields.h"

#include <cmath>
#include <limits>

namespace dex {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void collect(const Descriptor& type, const std::string& prefix, std::vector<SpecField>& fields) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->is_repeated()) continue;
    const std::string path = prefix + field->name();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      collect(*field->message_type(), path + ".", fields);
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
      fields.push_back({path, field});
    }
  }
}

template <typename Number>
bool holds(double value) {
  return std::trunc(value) == value &&
         value >= static_cast<double>(std::numeric_limits<Number>::min()) &&
         value <= static_cast<double>(std::numeric_limits<Number>::max());
}

}  // namespace

bool SpecField::is_number() const {
  return field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM &&
         field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL;
}

std::vector<double> SpecField::candidates() const {
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return {0, 1};
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    std::vector<double> numbers = {-1, 99};
    for (int n = 0; n <= 8; ++n) numbers.push_back(n);
    return numbers;
  }
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> fitting;
  for (const double value :
       {-1001.0,   -11.0, -1.0,      0.0,       1e-320,      1e-5,      0.01,         0.1,
        0.5,       0.51,  0.9999,    0.99999,   0.999999,    0.9999999, 1.0,          1.5,
        2.0,       9.0,   10.0,      15.0,      16.0,        17.0,      64.0,         65.0,
        100.0,     101.0, 1000.0,    1001.0,    4096.0,      4097.0,    86400.0,      86401.0,
        1048576.0, 1e6,   1048577.0, 1e7,       10000001.0,  1e9,       1000000001.0, 4294967295.0,
        1e15,      1e300, infinity,  -infinity, std::nan("")}) {
    const bool fits =
        field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
        (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32 && holds<uint32_t>(value)) ||
        (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64 && std::abs(value) <= 1e15 &&
         holds<int64_t>(value));
    if (fits) fitting.push_back(value);
  }
  return fitting;
}

void SpecField::set(dex::v1::FineTuningJobSpec& spec, double value) const {
  Message* holder = &spec;
  size_t begin = 0;
  for (size_t dot = 0; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const auto* step = holder->GetDescriptor()->FindFieldByName(path.substr(begin, dot - begin));
    holder = holder->GetReflection()->MutableMessage(holder, step);
  }
  const auto& reflection = *holder->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(holder, field, value);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(holder, field, static_cast<uint32_t>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(holder, field, static_cast<int64_t>(value));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(holder, field, value != 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(holder, field, static_cast<int>(value));
    default:
      throw std::logic_error(path + " has a type that these tests do not know");
  }
}

std::vector<SpecField> spec_fields() {
  std::vector<SpecField> fields;
  collect(*dex::v1::FineTuningJobSpec::descriptor(), "", fields);
  return fields;
}

}  // namespace dex
