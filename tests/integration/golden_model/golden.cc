#include "tests/integration/golden_model/golden.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "services/base/files.h"
#include "services/base/subprocess.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "worker/model/weights.h"

namespace dex::golden {
namespace {

constexpr int64_t kLargestFile = 1 << 20;
constexpr int64_t kDeadline_ms = 60'000;

std::string content(const std::filesystem::path& path) {
  auto text = base::read_file(path, kLargestFile);
  if (!text.ok()) throw std::runtime_error(path.string() + ": " + text.status().message());
  return *text;
}

}  // namespace

std::filesystem::path model_folder() {
  return support::deps_dir() / "models/smollm2-135m-instruct";
}

nlohmann::json read(const std::string& file) {
  auto golden = nlohmann::json::parse(content(support::source_dir() / "tests/data/golden" / file));
  static const std::string found = model::base_weights_sha256(model_folder());
  const std::string made_with = golden["source"]["weights_sha256"];
  if (made_with != found) {
    throw std::runtime_error(file + " was made with weights " + made_with +
                             ", the model folder has " + found + ": run tests/data/golden/" +
                             golden["source"]["script"].get<std::string>());
  }
  return golden;
}

std::vector<int64_t> tokens_of(const nlohmann::json& model_case) {
  auto tokens = model_case["prompt"].get<std::vector<int64_t>>();
  for (const auto& id : model_case["greedy"]) tokens.push_back(id);
  return tokens;
}

std::string joined(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

std::string run_engine(const std::vector<std::string>& arguments) {
  const support::TemporaryDirectory dir;
  base::Subprocess::Options options;
  options.program = (support::build_dir() / "bin/dex-engine").string();
  options.args = arguments;
  options.stdout_file = dir / "out";
  options.stderr_file = dir / "error";
  auto process = base::Subprocess::start(options);
  if (!process.ok()) throw std::runtime_error(process.status().message());
  const auto exit = (*process)->wait(kDeadline_ms);
  if (!exit || !exit->success()) {
    throw std::runtime_error("dex-engine " + (exit ? exit->to_string() : "does not end") + ": " +
                             content(options.stderr_file));
  }
  return content(options.stdout_file);
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace dex::golden
