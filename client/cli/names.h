#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/generated_enum_reflection.h>
#include <google/protobuf/timestamp.pb.h>

#include <string>

namespace dex::cli {

inline std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// JOB_STATE_RUNNING → "running", as --state and --set take it; "" for …_UNSPECIFIED.
inline std::string short_name(const google::protobuf::EnumValueDescriptor& value) {
  if (value.number() == 0) return "";
  const std::string& zero = value.type()->value(0)->name();
  return lower(value.name().substr(zero.rfind("UNSPECIFIED")));
}
template <typename Enum>
std::string short_name(Enum value) {
  const auto* found = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return found ? short_name(*found) : std::to_string(static_cast<int>(value));
}

// A short name as a reader's words: "loading_model" → "loading model".
inline std::string words(std::string text) {
  for (char& c : text) c = c == '_' ? ' ' : c;
  return text;
}

// "2026-11-29 14:03" in local time; "" when unset.
std::string local_time(const google::protobuf::Timestamp& time);

}  // namespace dex::cli
