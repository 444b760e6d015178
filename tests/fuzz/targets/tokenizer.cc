// tokenizer.json, read by the Rust half, and what it then makes of a text.
#include "services/text/tokenizer.h"

#include <nlohmann/json.hpp>

#include "tests/fuzz/target.h"

namespace dex::fuzz {

namespace {

using nlohmann::json;

// Byte-level BPE with few tokens: small, so that many inputs fit into a second.
json small_tokenizer() {
  json vocabulary;
  int id = 0;
  for (char c = '!'; c <= '~'; ++c) vocabulary[std::string(1, c)] = id++;
  vocabulary["ab"] = id++;
  vocabulary["abab"] = id++;
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", id},
             {"content", "</s>"},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false},
             {"special", true}}}},
          {"pre_tokenizer",
           {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", "ab ab"}}}}};
}

}  // namespace

Corpus corpus() {
  json with_post = small_tokenizer();
  const json bos = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const int id = with_post["added_tokens"][0]["id"];
  with_post["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {bos, text}},
      {"pair", {bos, text}},
      {"special_tokens", {{"</s>", {{"id", "</s>"}, {"ids", {id}}, {"tokens", {"</s>"}}}}}}};
  json cyclic = small_tokenizer();
  cyclic["model"]["merges"] = {"a b", "ab ab", "a b"};
  json normalised = small_tokenizer();
  normalised["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "NFC"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "_"}}}}};
  json splits = small_tokenizer();
  splits["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", "(a+)+b|\\s+(?!\\S)"}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}}}};
  return {{small_tokenizer().dump(), with_post.dump(), cyclic.dump(), normalised.dump(),
           splits.dump(), std::string(1000, '['), "{}"},
          {"\"merges\"", "\"vocab\"", "\"BPE\"", "\"Unigram\"", "\"WordPiece\"", "\"WordLevel\"",
           "\"byte_fallback\":true", "\"continuing_subword_prefix\":\"##\"", "\"unk_token\":\"a\"",
           "\"dropout\":1.0", "\"ignore_merges\":true", "\"truncation\"", "\"padding\"",
           "\"added_tokens\":[]", "\"Metaspace\"", "\"ByteFallback\"", "\"a b\"", "\"ab ab\"",
           "\"normalizer\":null"}};
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const auto tokenizer = dex::text::Tokenizer::from_json(view(data, size), {});
  check(tokenizer.status());
  if (!tokenizer.ok()) return 0;
  taken();
  const dex::text::Tokenizer& made = **tokenizer;
  for (const std::string_view text : {"ababab </s> caf\xC3\xA9 \xF0\x9F\x99\x82", "", "\n\n a"}) {
    const auto ids = made.encode(text, true);
    check(ids.status());
    const auto starts = made.encode_with_starts(text);
    check(starts.status());
    if (!ids.ok() || !starts.ok()) continue;
    require(starts->ids.size() == starts->starts.size(), "a start for each id");
    for (const uint32_t start : starts->starts) require(start <= text.size(), "starts in the text");
    for (const int32_t id : *ids) require(id >= 0 && id < made.vocab_size(), "ids below the size");
    check(made.decode(*ids, true).status());
  }
  (void)made.token_bytes(made.vocab_size());
  (void)made.token_bytes(-1);
  return 0;
}
