#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/generated_enum_reflection.h>
#include <google/protobuf/timestamp.pb.h>

#include <string>

namespace dex::cli {

// JOB_STATE_RUNNING → "running"; "" for …_UNSPECIFIED.
template <typename Enum>
std::string short_name(Enum value) {
  const auto* type = google::protobuf::GetEnumDescriptor<Enum>();
  const auto* found = type->FindValueByNumber(value);
  if (!found) return std::to_string(static_cast<int>(value));
  if (found->number() == 0) return "";
  const std::string& zero = type->value(0)->name();
  std::string text = found->name().substr(zero.rfind("UNSPECIFIED"));
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "2026-11-29 14:03" in local time; "" when unset.
std::string local_time(const google::protobuf::Timestamp& time);

}  // namespace dex::cli
