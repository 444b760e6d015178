#include "tests/support/tiny_model.h"

#include <bit>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "services/base/sha256.h"
#include "tests/support/paths.h"

namespace dex::support {

namespace fs = std::filesystem;

namespace {

constexpr int kVocabulary = 49152, kHidden = 64, kMlp = 128, kHeads = 4, kKvHeads = 2;
constexpr int kHeadSize = kHidden / kHeads;

// What the two models differ in.
struct Shape {
  int layers;
  bool differential;  // DiffLlama: pairs of heads, with four vectors of λ a layer
};
constexpr Shape kLlama = {.layers = 3, .differential = false};
constexpr Shape kDiffLlama = {.layers = 2, .differential = true};

// The file format of safetensors: the header's length, the header in JSON, then the tensors' bytes.
class Safetensors {
 public:
  void random(const std::string& name, const std::vector<int>& shape) {
    std::normal_distribution<float> values(0.0F, 0.08F);
    add(name, shape, [&] { return values(random_); });
  }
  void ones(const std::string& name, int size) {
    add(name, {size}, [] { return 1.0F; });
  }
  void write(const fs::path& file) const {
    const std::string header = header_.dump();
    const uint64_t length = header.size();
    std::ofstream out(file, std::ios::binary);
    out.exceptions(std::ios::failbit | std::ios::badbit);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << bytes_;
  }

 private:
  template <class Next>
  void add(const std::string& name, const std::vector<int>& shape, Next next) {
    const size_t begin = bytes_.size();
    int64_t count = 1;
    for (const int size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) {
      const auto bf16 = static_cast<uint16_t>(std::bit_cast<uint32_t>(next()) >> 16);
      bytes_.append(reinterpret_cast<const char*>(&bf16), sizeof bf16);
    }
    header_[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {begin, bytes_.size()}}};
  }

  std::mt19937 random_{7};
  nlohmann::json header_;
  std::string bytes_;
};

void write_weights(const Shape& shape, const fs::path& file) {
  Safetensors tensors;
  tensors.random("model.embed_tokens.weight", {kVocabulary, kHidden});
  tensors.ones("model.norm.weight", kHidden);
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    tensors.ones(layer + "input_layernorm.weight", kHidden);
    tensors.ones(layer + "post_attention_layernorm.weight", kHidden);
    tensors.random(layer + "self_attn.q_proj.weight", {kHeads * kHeadSize, kHidden});
    tensors.random(layer + "self_attn.k_proj.weight", {kKvHeads * kHeadSize, kHidden});
    tensors.random(layer + "self_attn.v_proj.weight", {kKvHeads * kHeadSize, kHidden});
    tensors.random(layer + "self_attn.o_proj.weight", {kHidden, kHeads * kHeadSize});
    tensors.random(layer + "mlp.gate_proj.weight", {kMlp, kHidden});
    tensors.random(layer + "mlp.up_proj.weight", {kMlp, kHidden});
    tensors.random(layer + "mlp.down_proj.weight", {kHidden, kMlp});
    if (!shape.differential) continue;
    for (const char* lambda : {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"})
      tensors.random(layer + "self_attn." + lambda, {kHeadSize});
  }
  tensors.write(file);
}

// SmolLM2's configuration with smaller sizes.
void write_config(const Shape& shape, const fs::path& from, const fs::path& to) {
  std::ifstream in(from);
  auto config = nlohmann::json::parse(in);
  if (shape.differential) {
    config["model_type"] = "diffllama";
    config["architectures"] = nlohmann::json::array({"DiffLlamaForCausalLM"});
  }
  config["hidden_size"] = kHidden;
  config["intermediate_size"] = kMlp;
  config["num_hidden_layers"] = shape.layers;
  config["num_attention_heads"] = kHeads;
  config["num_key_value_heads"] = kKvHeads;
  config["head_dim"] = kHeadSize;
  config["max_position_embeddings"] = 1024;
  std::ofstream(to) << config.dump(2);
}

// The model's files, and what a list says of it.
nlohmann::json write_model(const Shape& shape, const fs::path& folder, const std::string& name) {
  const fs::path source = support::deps_dir() / "models" / "smollm2-135m-instruct";
  const fs::path model = folder / name;
  fs::create_directories(model);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json", "chat_template.jinja"}) {
    fs::copy_file(source / file, model / file);
  }
  write_config(shape, source / "config.json", model / "config.json");
  write_weights(shape, model / "model.safetensors");

  const auto sha256 = [&](const char* file) { return base::sha256_file(model / file).value(); };
  return {{"name", name},
          {"folder", name},
          {"display_name", "Tiny, random"},
          {"family", shape.differential ? "diffllama" : "llama"},
          {"license", "Apache-2.0"},
          {"weights_sha256", sha256("model.safetensors")},
          {"tokenizer_sha256", sha256("tokenizer.json")},
          {"chat_template_sha256", sha256("chat_template.jinja")},
          {"languages", {"en"}}};
}

fs::path write_list(const fs::path& folder, const nlohmann::json& models) {
  const fs::path list = folder / "models.json";
  std::ofstream(list) << nlohmann::json{{"models", models}}.dump(2);
  return list;
}

}  // namespace

fs::path write_tiny_model(const fs::path& folder) {
  return write_list(folder, nlohmann::json::array({write_model(kLlama, folder, kTinyModel)}));
}

fs::path write_tiny_models(const fs::path& folder) {
  return write_list(folder,
                    nlohmann::json::array({write_model(kLlama, folder, kTinyModel),
                                           write_model(kDiffLlama, folder, kTinyDiffLlama)}));
}

}  // namespace dex::support
