// dex-engine, the program, against transformers: greedy tokens and log-probabilities, base and
// random adapters.

#include <gtest/gtest.h>

#include <regex>

#include "tests/integration/golden_model/golden.h"
#include "tests/integration/golden_model/random_adapter.h"
#include "tests/support/temporary_directory.h"

namespace dex::golden {
namespace {

std::vector<double> score(const std::vector<int64_t>& tokens,
                          const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"score",   "--model",  model_folder().string(),
                                        "--dtype", "f32",      "--threads",
                                        "2",       "--tokens", joined(tokens)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return nlohmann::json::parse(run_engine(arguments)).get<std::vector<double>>();
}

std::vector<int64_t> ids_in(const std::string& text) {
  std::vector<int64_t> ids;
  const std::regex number("[0-9]+");
  for (std::sregex_iterator at(text.begin(), text.end(), number), end; at != end; ++at) {
    ids.push_back(std::stoll(at->str()));
  }
  return ids;
}

TEST(EngineGoldenTest, ScoresAsTransformers) {
  for (const auto& [name, expected] : read("model.json")["cases"].items()) {
    EXPECT_LT(largest_difference(score(tokens_of(expected)),
                                 expected["token_logprobs"].get<std::vector<double>>()),
              2e-3)
        << name;
  }
}

TEST(EngineGoldenTest, GreedyTokensAreThoseOfTransformers) {
  // A folder without a tokenizer: the engine then prints ids.
  const support::TemporaryDirectory dir;
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(model_folder() / file, dir / file);
  }
  for (const auto& [name, expected] : read("model.json")["cases"].items()) {
    const auto greedy = expected["greedy"].get<std::vector<int64_t>>();
    const std::string out = run_engine(
        {"generate", "--model", dir.path().string(), "--dtype", "f32", "--threads", "2",
         "--temperature", "0", "--ignore-eos", "--max-tokens", std::to_string(greedy.size()),
         "--tokens", joined(expected["prompt"].get<std::vector<int64_t>>())});
    EXPECT_EQ(ids_in(out), greedy) << name;
  }
}

TEST(EngineGoldenTest, ScoresRandomAdaptersAsTransformers) {
  const auto golden = read("adapter.json");
  const auto config = model::load_config(model_folder());
  const auto weights = model::load_weights(model_folder(), config, {.dtype = at::kFloat});
  const auto tokens = golden["tokens"].get<std::vector<int64_t>>();
  const support::TemporaryDirectory dir;
  for (const auto& [name, expected] : golden["cases"].items()) {
    auto adapter = random_adapter(expected, golden["rule"], config, weights);
    adapter.base_weights_sha256 = golden["source"]["weights_sha256"];
    model::write_adapter(dir / name, adapter);
    const auto found = score(tokens, {"--adapter", (dir / name).string()});
    EXPECT_LT(largest_difference(found, expected["token_logprobs"].get<std::vector<double>>()),
              2e-3)
        << name;

    // Folded into a plain folder: what the branch itself gives, and what this engine gives.
    const std::string folder = (dir / (name + "-folded")).string();
    const auto certificate = nlohmann::json::parse(
        run_engine({"fold", "--model", model_folder().string(), "--adapter", (dir / name).string(),
                    "--dtype", "f32", "--out", folder}));
    EXPECT_LE(certificate["largest_logit_difference"].get<double>(), 1e-4) << name;
    const auto folded =
        nlohmann::json::parse(run_engine({"score", "--model", folder, "--dtype", "f32", "--threads",
                                          "2", "--tokens", joined(tokens)}));
    EXPECT_LT(largest_difference(folded.get<std::vector<double>>(), found), 1e-4) << name;
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace dex::golden
