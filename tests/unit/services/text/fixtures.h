#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "services/text/chat_template.h"
#include "services/text/tokenizer.h"
#include "tests/support/paths.h"

namespace dex::text {

// The test model's folder, made by deploy/setup.
inline std::string model_folder() {
  return (support::deps_dir() / "models/smollm2-135m-instruct").string();
}

// The real tokenizer, loaded once a process. Fails the test if the model is missing.
inline const Tokenizer& real_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    auto loaded = Tokenizer::load(model_folder());
    if (!loaded.ok())
      throw std::runtime_error(loaded.status().to_string() + "; run deploy/setup/all");
    return std::move(loaded).value();
  }();
  return *tokenizer;
}

inline const ChatTemplate& real_template() {
  static const std::unique_ptr<ChatTemplate> chat_template = [] {
    auto loaded = ChatTemplate::load(model_folder());
    if (!loaded.ok())
      throw std::runtime_error(loaded.status().to_string() + "; run deploy/setup/all");
    return std::move(loaded).value();
  }();
  return *chat_template;
}

// What tokenizers and transformers made of the same inputs (tests/data/text/make_golden.py).
inline const nlohmann::json& golden() {
  static const nlohmann::json values = [] {
    std::ifstream file(support::source_dir() / "tests/data/text/golden.json");
    return nlohmann::json::parse(file);
  }();
  return values;
}

inline std::vector<Message> messages_of(const nlohmann::json& list) {
  std::vector<Message> messages;
  for (const auto& m : list) messages.push_back({.role = m["role"], .content = m["content"]});
  return messages;
}

// A byte-level tokenizer of 256 bytes and three special tokens (<s> 256, </s> 257, <|turn|> 258).
// With `adds_bos` its post-processor puts <s> in front, as Llama 3's does.
inline std::string byte_tokenizer_json(bool adds_bos) {
  nlohmann::json vocabulary;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool visible =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int code = visible ? byte : next++;
    std::string key;
    if (code < 0x80) {
      key = static_cast<char>(code);
    } else {
      key = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
    vocabulary[key] = byte;
  }
  nlohmann::json json = {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  int id = 256;
  for (const char* token : {"<s>", "</s>", "<|turn|>"}) {
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  if (adds_bos) {
    const nlohmann::json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
    const nlohmann::json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const nlohmann::json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {bos, text}},
        {"pair", {bos, text, second}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {256}}, {"tokens", {"<s>"}}}}}}};
  }
  return json.dump();
}

inline std::unique_ptr<Tokenizer> byte_tokenizer(bool adds_bos = false) {
  ModelTextConfig config;
  config.tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  config.generation_eos_ids = {257, 258};
  auto tokenizer = Tokenizer::from_json(byte_tokenizer_json(adds_bos), config);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().to_string());
  return std::move(tokenizer).value();
}

inline std::unique_ptr<ChatTemplate> template_of(std::string source) {
  auto made =
      ChatTemplate::from_source(std::move(source), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!made.ok()) throw std::runtime_error(made.status().to_string());
  return std::move(made).value();
}

}  // namespace dex::text
