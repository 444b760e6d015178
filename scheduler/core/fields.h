#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <map>
#include <string>

namespace dex::core {

// Where a value of the effective spec came from, by path ("dex.lambda.anneal_steps"): USER, PRESET,
// DEFAULT, AUTO, MODEL, CLAMPED; once it is resolved with the marks of marks.h.
using Sources = std::map<std::string, std::string>;

// Calls `visit` with the path of every set scalar, repeated or map field below `message`, depth
// first.
void for_each_set_field(const google::protobuf::Message& message,
                        const std::function<void(const std::string& path)>& visit);

// Copies every field of `from` that `to` leaves unset, and notes `source` for it. A oneof that `to`
// has decided stays as it is. Both are of the same type.
void fill_unset(const google::protobuf::Message& from, google::protobuf::Message& to,
                const std::string& source, Sources& sources);

// Whether the field at `path` is set. The path must exist in the message's type.
bool has_field(const google::protobuf::Message& message, const std::string& path);
void clear_field(google::protobuf::Message& message, const std::string& path);

// Whether two messages of one type have the same value at `path`, both unset included.
bool same_field(const google::protobuf::Message& a, const google::protobuf::Message& b,
                const std::string& path);
// The value at `path` for people: protobuf's text of it, lists in full; empty where unset.
std::string field_text(const google::protobuf::Message& message, const std::string& path);

// Clears submessages in which nothing is set, from the inside out. A oneof's choice stays: an empty
// kvo_only says something.
void drop_empty(google::protobuf::Message& message);

}  // namespace dex::core
