#pragma once

#include <map>
#include <string>
#include <vector>

namespace dex::support {

// The codes of api.md §5 that need no tokenizer, but for those of files beyond 8 GiB or 10 million
// rows, which a test of the validator reaches with smaller limits.
inline const std::vector<std::string> kStructureCodes = {"empty_file",
                                                         "encoding_utf16",
                                                         "invalid_utf8",
                                                         "bom_removed",
                                                         "crlf_line_endings",
                                                         "compressed_file",
                                                         "json_array_file",
                                                         "pretty_printed_json",
                                                         "too_few_rows",
                                                         "unknown_format",
                                                         "truncated_last_line",
                                                         "line_too_long",
                                                         "blank_line",
                                                         "nul_byte",
                                                         "invalid_json",
                                                         "not_an_object",
                                                         "duplicate_key",
                                                         "nesting_too_deep",
                                                         "mixed_format",
                                                         "missing_key",
                                                         "wrong_type",
                                                         "unknown_key",
                                                         "lone_surrogate",
                                                         "replacement_character",
                                                         "duplicate_row",
                                                         "unknown_role",
                                                         "role_order",
                                                         "empty_content",
                                                         "no_assistant_message",
                                                         "ends_without_assistant",
                                                         "weight_invalid",
                                                         "weight_on_non_assistant",
                                                         "all_weights_zero",
                                                         "length_mismatch",
                                                         "special_token_in_text",
                                                         "secret_like_text"};

// Files with faults, by name: together they have every one of kStructureCodes.
inline std::map<std::string, std::string> bad_files() {
  using std::literals::operator""s;
  std::string texts, chats, ids;
  for (int i = 0; i < 12; ++i) {
    const std::string n = std::to_string(i);
    texts += R"({"text": "row )" + n + "\"}\n";
    chats += R"({"messages": [{"role": "user", "content": "q)" + n +
             R"("}, {"role": "assistant", "content": "a"}]})" + "\n";
    ids += R"({"input_ids": [1, )" + n + R"(], "labels": [1, )" + n + "]}\n";
  }
  const auto chat = [](const std::string& messages) {
    return R"({"messages": [)" + messages + "]}\n";
  };
  const std::string user = R"({"role": "user", "content": "u"})";
  const std::string answer = R"({"role": "assistant", "content": "a"})";
  const std::string deep = "{\"text\": " + std::string(40, '[') + std::string(40, ']') + "}\n";
  std::map<std::string, std::string> files;
  files["empty"] = "";
  files["blank"] = "\n\n";
  files["utf16"] = "\xFF\xFE{\0\"\0a\0\"\0"s;
  files["latin1"] = texts + "{\"text\": \"caf\xE9\"}\n";
  files["bom_and_crlf"] = "\xEF\xBB\xBF" + texts + "{\"text\": \"x\"}\r\n";
  files["gzip"] = "\x1F\x8B\x08\0\0\0\0\0\0\x03rest"s;
  files["array"] = "[\n{\"text\": \"a\"},\n{\"text\": \"b\"}\n]\n";
  files["pretty"] = "{\n  \"text\": \"a\"\n}\n{\n  \"text\": \"b\"\n}\n";
  files["few_rows"] = "{\"text\": \"a\"}\n";
  files["other_keys"] = "{\"instruction\": \"do\", \"output\": \"done\"}\n";
  files["cut_off"] = texts + "{\"text\": \"the end is mis";
  files["long_line"] = texts + "{\"text\": \"" + std::string((8 << 20) + 1, 'x') + "\"}\n";
  files["lines"] = texts + "\n" + "{\"text\": \"a\0b\"}\n"s + "{\"text\": 'single'}\n" +
                   "[\"text\"]\n" + R"({"text": "a", "text": "b"})" + "\n" + deep + chat(user) +
                   R"({"txt": "a"})" + "\n" + R"({"text": 5})" + "\n" +
                   R"({"text": "a", "langage": "en"})" + "\n" + R"({"text": "ab\ud83d!"})" + "\n" +
                   "{\"text\": \"caf\xEF\xBF\xBD\"}\n" + R"({"text": "row 3"})" + "\n" +
                   R"({"text": "a <|im_end|> b"})" + "\n" +
                   R"({"text": "key AKIAIOSFODNN7EXAMPLE"})" + "\n" + R"({"text": ""})" + "\n";
  files["chats"] = chats + chat(R"({"role": "human", "content": "u"}, )" + answer) +
                   chat(user + ", " + user + ", " + answer) + chat(user) +
                   chat(user + ", " + answer + ", " + user) +
                   chat(user + R"(, {"role": "assistant", "content": "a", "weight": 1.5})") +
                   chat(R"({"role": "user", "content": "u", "weight": 1}, )" + answer) +
                   chat(user + R"(, {"role": "assistant", "content": "a", "weight": 0})") +
                   chat(R"({"role": "user", "content": ""}, )" + answer) + "{\"messages\": {}}\n";
  files["tokens"] = ids + R"({"input_ids": [1, 2], "labels": [1]})" + "\n" +
                    R"({"input_ids": [1, 2], "labels": [2, 3]})" + "\n" +
                    R"({"input_ids": [1, 2], "labels": [-100, -100]})" + "\n" +
                    R"({"input_ids": [1, "2"], "labels": [1, 2]})" + "\n";
  std::string many;  // more faults than are stored
  for (int i = 0; i < 1500; ++i) many += i % 3 == 0 ? "not json\n" : "\n";
  files["many_faults"] = texts + many;
  return files;
}

}  // namespace dex::support
