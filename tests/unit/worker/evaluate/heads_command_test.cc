#include "worker/evaluate/heads_command.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "tests/unit/worker/train/tiny_model.h"
#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/head_structure.h"
#include "worker/evaluate/token_sequences.h"

namespace dex::evaluate {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;
namespace tiny = train::testing;

class HeadsCommandTest : public ::testing::Test {
 protected:
  HeadsCommandTest() {
    at::set_num_threads(1);
    tiny::write_tiny_model(directory_ / "model");
    for (auto& row : tiny::tiny_rows(3, 60)) {
      while (row.size() < 50) row.push_back(static_cast<int32_t>(row.size() * 7 % 97));
      rows_.push_back(row);
    }
    rows_.push_back({5, 6, 7});
    command_.model = directory_ / "model";
    command_.tokens_file = directory_ / "ids.json";
    write(nlohmann::json(rows_).dump());
  }

  void write(const std::string& text) { std::ofstream(command_.tokens_file) << text; }
  nlohmann::json run() {
    std::ostringstream out, log;
    heads(command_, out, log);
    log_ = log.str();
    return nlohmann::json::parse(out.str());
  }

  support::TemporaryDirectory directory_;
  std::vector<std::vector<int32_t>> rows_;
  HeadsCommand command_;
  std::string log_;
};

TEST_F(HeadsCommandTest, PrintsEntropyAndImportanceOfEachHead) {
  const auto found = run();
  EXPECT_EQ(found.at("entropy_unit"), "nats");
  EXPECT_EQ(found.at("i_min"), 32);
  EXPECT_EQ(found.at("sequences"), 4);
  EXPECT_FALSE(found.contains("cosine"));
  EXPECT_THAT(log_, IsEmpty());

  std::vector<std::vector<float>> ones;
  std::vector<Document> documents;
  for (const auto& row : rows_) ones.emplace_back(row.size(), 1.0f);
  for (size_t i = 0; i < rows_.size(); ++i) documents.push_back({rows_[i], ones[i]});
  const auto config = tiny::tiny_config();
  const auto weights = tiny::tiny_weights(config);
  kernels::LinearCrossEntropy cross_entropy;
  const auto scores =
      measure_heads(model::Llama(config, weights), {}, documents, {.exact = true}, cross_entropy);
  EXPECT_EQ(found.at("entropy").get<HeadTable>(), scores.entropy_nats);
  EXPECT_EQ(found.at("importance").get<HeadTable>(), scores.importance);
}

TEST_F(HeadsCommandTest, SaysWhatHappensWhenNoSequenceReachesIMin) {
  command_.i_min = 60;
  const auto found = run();
  EXPECT_EQ(found.at("i_min"), 1);
  EXPECT_EQ(found.at("entropy_unit"), "normalized");
  EXPECT_THAT(log_, HasSubstr("no sequence has more than i_min = 60 ids"));
}

TEST_F(HeadsCommandTest, EveryMeasureHasItsShape) {
  command_.measures = head_measures();
  const auto found = run();
  const auto table = [](const nlohmann::json& in) { return in.get<HeadTable>(); };
  for (const auto& each : {found.at("sparsity").at("share"), found.at("entropy")}) {
    ASSERT_EQ(table(each).size(), 2u);
    ASSERT_EQ(table(each)[0].size(), 4u);
  }
  for (const char* measure : {"cosine", "cka"}) {
    EXPECT_EQ(found.at(measure).at("mean").size(), 2u);
    EXPECT_EQ(table(found.at(measure).at("pairs")[1]).size(), 4u);
  }
  EXPECT_NEAR(table(found.at("cka").at("pairs")[0])[2][2], 1, 1e-12);
  EXPECT_EQ(found.at("sparsity").at("negative_mass")[0][0], 0.0);
  EXPECT_FALSE(found.at("sparsity").contains("removed_below_zero"));
  // 4·50 positions or more, 8 dimensions: enough; fewer are said.
  EXPECT_THAT(log_, Not(HasSubstr("cka")));
  write("[[1,2,3,4,5],[6,7,8]]");
  run();
  EXPECT_THAT(log_, HasSubstr("cka: 8 positions for heads of 8 dimensions"));
}

TEST_F(HeadsCommandTest, MeasuresTheModelWithItsAdapter) {
  auto options = serve::testing::tiny_options()[0];
  const auto adapter = serve::testing::tiny_adapter(
      options, 7, model::base_weights_sha256(directory_ / "model"), 4.0);
  model::write_adapter(directory_ / "adapter", adapter);
  const auto base = run();
  command_.adapter = directory_ / "adapter";
  command_.measures = {"entropy", "sparsity"};
  const auto adapted = run();
  EXPECT_NE(adapted.at("entropy"), base.at("entropy"));  // K is trained
  EXPECT_EQ(adapted.at("entropy_of"), "A");
  EXPECT_EQ(adapted.at("sparsity").at("removed_of"), "head");
  const auto& removed = adapted.at("sparsity").at("removed_below_half");
  EXPECT_GT(removed[0][0].get<int64_t>(), 0);
  EXPECT_EQ(removed[0][0], removed[0][3]);  // one map for both selected heads
  EXPECT_TRUE(removed[0][1].is_null());     // not selected
}

TEST_F(HeadsCommandTest, SignedMapsOfAnAdapterAreMeasuredAndNamed) {
  const auto options = serve::testing::tiny_options()[serve::testing::kUniformMap];
  auto adapter =
      serve::testing::tiny_adapter(options, 7, model::base_weights_sha256(directory_ / "model"));
  for (auto& layer : adapter.adaptation.layers) layer.branch.gate = at::full({4}, 1.5F);
  model::write_adapter(directory_ / "adapter", adapter);
  command_.adapter = directory_ / "adapter";
  command_.measures = {"entropy", "sparsity"};
  const auto found = run();
  EXPECT_EQ(found.at("entropy_of"), "|M| renormalised");
  EXPECT_THAT(log_, HasSubstr("|M| renormalised"));
  const auto& sparsity = found.at("sparsity");
  EXPECT_GT(sparsity.at("negative_mass").get<HeadTable>()[0][0], 0.0);
  EXPECT_GT(sparsity.at("negative_share").get<HeadTable>()[0][0], 0.0);
  EXPECT_EQ(sparsity.at("negative_mass").get<HeadTable>()[0][1], 0.0);  // not selected
  EXPECT_FALSE(sparsity.contains("removed_of"));
}

// Whole, so that an evaluation's caller sees how sure each eigenvalue is.
TEST_F(HeadsCommandTest, EigenvaluesHaveAHistogramAndSayWhetherTheySettled) {
  command_.measures = {"hessian"};
  const auto found = run().at("hessian");
  const auto values = found.at("eigenvalues").get<std::vector<double>>();
  ASSERT_EQ(values.size(), rows_.size());
  const auto& bars = found.at("histogram");
  EXPECT_EQ(bars.at("low").get<double>(), std::ranges::min(values));
  EXPECT_EQ(bars.at("high").get<double>(), std::ranges::max(values));
  const auto counts = bars.at("counts").get<std::vector<int64_t>>();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 4);
  int64_t left = 0;
  for (const auto& each : found.at("converged")) left += each.get<bool>() ? 0 : 1;
  EXPECT_EQ(found.at("not_settled").get<int64_t>(), left);
  if (left > 0) {
    EXPECT_THAT(log_, HasSubstr(std::to_string(left) + " of 4 Hessian eigenvalues did not settle"));
  } else {
    EXPECT_THAT(log_, IsEmpty());
  }
}

// f64 of base and adapter: the same numbers to fp32's rounding, and not the same digits, but for
// importance and what is computed with it, which are exact in f32 too.
TEST_F(HeadsCommandTest, MeasuresInDoublePrecisionWhereItIsAskedFor) {
  const auto measure = [&](const char* dtype) {
    command_.dtype = dtype;
    return run();
  };
  const auto expect_near = [](const HeadTable& a, const HeadTable& b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t l = 0; l < a.size(); ++l) {
      for (size_t h = 0; h < a[l].size(); ++h) EXPECT_NEAR(a[l][h], b[l][h], tolerance);
    }
  };
  command_.measures = {"entropy", "importance", "cosine", "cka", "sparsity"};
  for (const int form : {-1, 0, serve::testing::kUniformMap}) {
    if (form >= 0) {
      command_.adapter = directory_ / ("adapter-" + std::to_string(form));
      const auto options = serve::testing::tiny_options()[static_cast<size_t>(form)];
      model::write_adapter(command_.adapter,
                           serve::testing::tiny_adapter(
                               options, 7, model::base_weights_sha256(directory_ / "model")));
    }
    const auto exact = measure("f64"), rounded = measure("f32");
    for (const char* score : {"entropy", "importance"})
      expect_near(exact.at(score).get<HeadTable>(), rounded.at(score).get<HeadTable>(), 1e-12);
    EXPECT_NE(exact.at("cosine"), rounded.at("cosine"));
    expect_near(exact.at("cosine").at("pairs")[1].get<HeadTable>(),
                rounded.at("cosine").at("pairs")[1].get<HeadTable>(), 1e-4);
    expect_near(exact.at("sparsity").at("negative_mass").get<HeadTable>(),
                rounded.at("sparsity").at("negative_mass").get<HeadTable>(), 1e-4);
  }
  command_.measures = {"entropy"};
  const auto exact = measure("f64").at("entropy"), rounded = measure("f32").at("entropy");
  expect_near(exact.get<HeadTable>(), rounded.get<HeadTable>(), 1e-4);
  EXPECT_NE(exact, rounded) << "alone it is computed in fp32";
  command_.measures = {"hessian"};
  EXPECT_THAT([&] { measure("f64"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("hessian is measured in f32 only")));
}

TEST_F(HeadsCommandTest, RefusesBadFilesByPlace) {
  const auto refuses = [&](const std::string& text, const std::string& words) {
    write(text);
    EXPECT_THAT([&] { run(); }, ThrowsMessage<std::runtime_error>(HasSubstr(words))) << text;
  };
  refuses("", "must be a JSON array of arrays of token ids");
  refuses("[[1, 2", "must be a JSON array");
  refuses(R"({"ids": [1, 2]})", "must be a JSON array");
  refuses("[]", "holds no sequence");
  refuses("[[1, 2], 3]", "sequence 2 is no array of token ids but number");
  refuses("[[1, 2], []]", "sequence 2 has 0 ids: at least 2");
  refuses("[[1, 2], [7]]", "sequence 2 has 1 ids: at least 2");
  refuses("[[1, 97]]", "sequence 1 at place 2 has id 97, the model has 0…96");
  refuses("[[1, -1]]", "sequence 1 at place 2 has id -1");
  refuses("[[1, 18446744073709551615]]", "has id 18446744073709551615");
  refuses("[[1, 2.5]]", "at place 2 has no whole number but 2.5");
  refuses("[[1, \"2\"]]", "at place 2 has no whole number but \"2\"");
  refuses(nlohmann::json::array({std::vector<int>(257, 1)}).dump(),
          "sequence 1 has 257 ids, the model reads at most 256");
  command_.tokens_file = directory_ / "nowhere.json";
  EXPECT_THAT([&] { run(); }, ThrowsMessage<std::runtime_error>(HasSubstr("--tokens-file: ")));
}

}  // namespace
}  // namespace dex::evaluate
