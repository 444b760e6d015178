// Published models as subjects beside their base: weights and an engine of their own, the same
// numbers for the same weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "services/base/sha256.h"
#include "tests/unit/worker/serve/evaluation_fixture.h"
#include "worker/serve/evaluation_report.h"

namespace dex::serve {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WholeSubjectTest : public EvaluationFramesTest {
 protected:
  fs::path base() { return dir / "models" / support::kTinyModel; }

  // The artefact of a job that trained everything: a copy of the base, with other weights where
  // `changed`.
  fs::path published(const std::string& name, bool changed, const std::string& of_base = "") {
    const fs::path folder = dir / name;
    fs::copy(base(), folder);
    if (changed) {
      // The last matrix of the last layer, in bf16: 0x3f00 is 0.5.
      std::fstream file(folder / "model.safetensors",
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-4096, std::ios::end);
      for (int i = 0; i < 2048; ++i) file.write("\x00\x3f", 2);
    }
    const std::string sha256 = base::sha256_file(base() / "model.safetensors").value();
    const nlohmann::json provenance = {{"base_weights_sha256", of_base.empty() ? sha256 : of_base}};
    std::ofstream(folder / "provenance.json") << provenance.dump();
    return seal(folder);
  }
  static fs::path seal(const fs::path& folder) {
    fs::remove(folder / "checksums.json");
    nlohmann::json sums;
    for (const auto& entry : fs::directory_iterator(folder))
      sums[entry.path().filename().string()] = base::sha256_file(entry.path()).value();
    std::ofstream(folder / "checksums.json") << sums.dump();
    return folder;
  }
  EvaluatorStart with_whole(const fs::path& folder, const std::string& attempt) {
    EvaluatorStart start = this->start(attempt);
    start.mutable_spec()->mutable_subjects()->RemoveLast();
    auto& subject = *start.mutable_spec()->add_subjects();
    subject.set_model(support::kTinyModel);
    subject.set_adapter("ft:full");
    subject.set_label("full");
    auto& adapter = *start.add_adapters();
    adapter.set_id("ft:full");
    adapter.set_path(folder.string());
    adapter.set_content_sha256(base::sha256_file(folder / "checksums.json").value());
    return start;
  }
  // "subject metric" → row over everything, of the first task.
  std::map<std::string, pb::EvaluationRow> rows(const Said& said) {
    EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_SUCCESS) << said.result.message();
    std::map<std::string, pb::EvaluationRow> out;
    if (said.result.outcome() != internal::v1::OUTCOME_SUCCESS) return out;
    const auto report = load_report(said.result.result().uri(), "checksums.json",
                                    said.result.result().manifest_sha256());
    for (const auto& row : report.results(0).rows()) {
      if (row.dims().empty()) out[row.subject() + " " + row.metric()] = row;
    }
    return out;
  }
};

TEST_F(WholeSubjectTest, TheSameWeightsGiveTheSameNumbers) {
  const auto found = rows(run(with_whole(published("same", /*changed=*/false), "attempt-1")));
  ASSERT_TRUE(found.contains("base loss"));
  ASSERT_TRUE(found.contains("full loss"));
  EXPECT_EQ(found.at("full loss").value(), found.at("base loss").value());
  EXPECT_EQ(found.at("full loss").delta(), 0);
}

TEST_F(WholeSubjectTest, OtherWeightsAreComparedWithTheBaseOnTheSameRows) {
  const auto found = rows(run(with_whole(published("other", /*changed=*/true), "attempt-1")));
  const auto alone = rows(run(start("attempt-2")));
  ASSERT_TRUE(found.contains("full loss"));
  EXPECT_EQ(found.at("base loss").value(), alone.at("base loss").value());
  EXPECT_NE(found.at("full loss").value(), found.at("base loss").value());
  EXPECT_NEAR(found.at("full loss").delta(),
              found.at("full loss").value() - found.at("base loss").value(), 1e-9);
}

TEST_F(WholeSubjectTest, WhatIsNotWhatWasPublishedIsNotMeasured) {
  const auto refused = [this](const EvaluatorStart& start) {
    const Said said = run(start);
    EXPECT_EQ(said.result.code(), "adapter_mismatch") << said.result.message();
    EXPECT_EQ(said.result.message().find(dir.path().string()), std::string::npos)
        << "no path of ours: " << said.result.message();
    return said.result.message();
  };
  EXPECT_THAT(refused(with_whole(published("foreign", false, std::string(64, 'b')), "attempt-1")),
              HasSubstr("made of another base"));
  const fs::path odd = published("odd", false);
  std::ofstream(odd / "provenance.json") << R"({"base_weights_sha256": 7})";
  EXPECT_THAT(refused(with_whole(seal(odd), "attempt-5")), HasSubstr("made of another base"));
  const fs::path folder = published("damaged", false);
  const auto start = with_whole(folder, "attempt-2");
  std::ofstream(folder / "config.json", std::ios::app) << " ";
  EXPECT_THAT(refused(start), HasSubstr("config.json has another SHA-256"));
  const fs::path other = published("weights", false);
  const auto swapped = with_whole(other, "attempt-3");
  fs::copy_file(published("changed", true) / "model.safetensors", other / "model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(swapped), HasSubstr("SHA-256"));
  auto scaled = with_whole(published("scaled", false), "attempt-4");
  scaled.mutable_spec()->mutable_subjects(1)->set_dex_lambda_scale(0.5);
  EXPECT_THAT(refused(scaled), HasSubstr("dex_lambda_scale"));
}

// The file is sparse: no worker has so much memory, and no disk needs to hold it.
TEST_F(WholeSubjectTest, ModelsThatDoNotFitAreRefusedBeforeOneIsRead) {
  const fs::path folder = published("large", false);
  const auto asked = with_whole(folder, "attempt-1");
  fs::resize_file(folder / "model.safetensors", uintmax_t{1} << 42);
  const Said said = run(asked);
  EXPECT_EQ(said.exit, 13) << said.result.message();
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_OOM);
  EXPECT_EQ(said.result.code(), "out_of_memory");
  EXPECT_EQ(said.result.param(), "subjects");
  EXPECT_THAT(said.result.message(), HasSubstr("full 4096.0 GiB"));
  EXPECT_THAT(said.result.message(), HasSubstr("measure fewer of them in one evaluation"));
}

// Mistral's folders have all weights twice, and of an earlier download files may be left: what no
// loader reads needs no memory. Sparse files as above.
TEST_F(WholeSubjectTest, WhatIsNotLoadedNeedsNoMemory) {
  const auto asked = with_whole(published("same", /*changed=*/false), "attempt-1");
  const auto large = [this](const std::string& name) {
    std::ofstream(base() / name).put('x');
    fs::resize_file(base() / name, uintmax_t{1} << 42);
  };
  large("consolidated.safetensors");
  EXPECT_TRUE(rows(run(asked)).contains("full loss"));

  // An index names what is read; this one is of no whole model, which the loader finds out.
  fs::rename(base() / "model.safetensors", base() / "model-00001-of-00001.safetensors");
  large("model.safetensors");
  std::ofstream(base() / "model.safetensors.index.json")
      << R"({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}})";
  const Said said = run(with_whole(dir / "same", "attempt-2"));
  EXPECT_EQ(said.result.outcome(), internal::v1::OUTCOME_RELEASE) << said.result.message();
}

}  // namespace
}  // namespace dex::serve
