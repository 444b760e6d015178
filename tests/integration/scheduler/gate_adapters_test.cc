// Gates that compare a job's result with another adapter: which ones they may name, and what of
// them a worker is told.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/integration/scheduler/evaluation_fixture.h"

namespace dex::server {
namespace {

using testing::HasSubstr;

constexpr const char* kTwoBases = R"({"models": [
  {"name": "small-model", "folder": "small", "family": "llama", "license": "Apache-2.0",
   "weights_sha256": "changed", "languages": ["en"]},
  {"name": "other-model", "folder": "small", "family": "llama", "license": "Apache-2.0",
   "weights_sha256": "aa", "languages": ["en"]}]})";

class GateAdaptersTest : public EvaluationTest {
 protected:
  GateAdaptersTest() : training_(upload_good()) {
    enlist();
    file_ = upload_evals("some text\n", "wiki.raw").id();
  }

  // On rows and seed that all jobs of a test share.
  v1::FineTuningJobSpec seeded(const std::string& method = "dex") {
    v1::FineTuningJobSpec made = spec(training_);
    made.set_seed(5);
    if (method == "kvo_only") made.mutable_kvo_only();
    if (method == "lora") made.mutable_lora();
    return made;
  }
  static v1::Gate& add_gate(v1::FineTuningJobSpec& spec, const std::string& file,
                            v1::Gate::Against against, const std::string& adapter) {
    auto& gate = *spec.add_gates();
    gate.set_metric("loss");
    gate.set_op(v1::Gate::OP_LE);
    gate.set_threshold(0);
    gate.set_against(against);
    if (!adapter.empty()) gate.set_adapter(adapter);
    gate.mutable_evaluation()->mutable_perplexity()->set_file(file);
    return gate;
  }
  base::Result<v1::FineTuningJob> submit(const v1::FineTuningJobSpec& spec) {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec;
    return create(request);
  }
  // Trained to its end; its adapter's id.
  std::string trained(const v1::FineTuningJobSpec& spec, const std::string& method) {
    const auto job = submit(spec);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    const auto claimed = claim();
    EXPECT_TRUE(claimed.has_job());
    EXPECT_EQ(finish_well(claimed.job(), "w1", "KVO", "none", method), "SUCCEEDED");
    return get(job->id()).fine_tuned_model();
  }
  void refused(const v1::FineTuningJobSpec& spec, const std::string& reason,
               const std::string& field, const std::string& words) {
    const auto status = submit(spec).status();
    EXPECT_EQ(status.reason(), reason) << status.to_string();
    ASSERT_EQ(status.violations().size(), 1U) << status.to_string();
    EXPECT_EQ(status.violations()[0].field, field);
    EXPECT_THAT(status.message(), HasSubstr(words));
  }
  void delete_adapter(const std::string& id) {
    v1::DeleteAdapterRequest request;
    request.set_id(id);
    const auto gone = call(*adapters_, &AdapterStub::DeleteAdapter, request);
    EXPECT_TRUE(gone.ok()) << gone.status().to_string();
  }

  std::string training_, file_;
};

TEST_F(GateAdaptersTest, OnesThatAreNotThereAreRefusedByTheirField) {
  auto asked = seeded();
  add_gate(asked, file_, v1::Gate::AGAINST_BASE, "");
  add_gate(asked, file_, v1::Gate::AGAINST_ADAPTER,
           "ft:small-model:default::00000000000000000000000000");
  refused(asked, "RESOURCE_NOT_FOUND", "gates[1].adapter", "ft:small-model");
  asked.mutable_gates(1)->clear_adapter();
  refused(asked, "INVALID_FIELD", "gates[1].adapter", "name the adapter to compare with");
  asked.mutable_gates(1)->set_against(v1::Gate::AGAINST_KVO_ONLY);
  refused(asked, "INVALID_FIELD", "gates[1].adapter", "a job of method kvo_only");

  const std::string other = trained(seeded("lora"), "lora");
  redis_.call({"HSET", "dex:{s0}:adapter:" + other, "tenant", "other"});
  asked.mutable_gates(1)->set_against(v1::Gate::AGAINST_ADAPTER);
  asked.mutable_gates(1)->set_adapter(other);
  refused(asked, "RESOURCE_NOT_FOUND", "gates[1].adapter", other);
}

TEST_F(GateAdaptersTest, TheyTravelWithTheJobOnce) {
  const std::string other = trained(seeded("lora"), "lora");
  auto asked = seeded();
  add_gate(asked, file_, v1::Gate::AGAINST_ADAPTER, other);
  add_gate(asked, file_, v1::Gate::AGAINST_BASE, "").set_name("beats-base");
  add_gate(asked, file_, v1::Gate::AGAINST_ADAPTER, other).set_metric("perplexity");
  const auto made = submit(asked);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->effective_config().spec().gates(0).adapter(), other);
  const auto job = claim().job();
  ASSERT_EQ(job.job_id(), made->id());
  ASSERT_EQ(job.evaluated_adapters_size(), 1);
  EXPECT_EQ(job.evaluated_adapters(0).id(), other);
  EXPECT_FALSE(job.evaluated_adapters(0).content_sha256().empty());
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data" / job.evaluated_adapters(0).path()));
}

// Hours of training are not lost with it.
TEST_F(GateAdaptersTest, OneThatWasDeletedMeanwhileIsLeftOut) {
  const std::string other = trained(seeded("lora"), "lora");
  auto asked = seeded();
  add_gate(asked, file_, v1::Gate::AGAINST_ADAPTER, other);
  const auto made = submit(asked);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  delete_adapter(other);
  const auto claimed = claim();
  ASSERT_TRUE(claimed.has_job());
  EXPECT_EQ(claimed.job().job_id(), made->id());
  EXPECT_EQ(claimed.job().evaluated_adapters_size(), 0);
  EXPECT_EQ(claimed.job().spec().gates(0).adapter(), other);
}

TEST_F(GateAdaptersTest, TheOneThatTheJobGoesOnFromNeedsNoName) {
  const std::string start = trained(seeded(), "dex");
  auto asked = spec(training_);
  asked.set_model(start);
  add_gate(asked, file_, v1::Gate::AGAINST_ADAPTER, "");
  const auto made = submit(asked);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->effective_config().spec().gates(0).adapter(), start);
  const auto job = claim().job();
  EXPECT_EQ(job.start_adapter().id(), start);
  ASSERT_EQ(job.evaluated_adapters_size(), 1);
  EXPECT_EQ(job.evaluated_adapters(0).id(), start);
}

TEST_F(GateAdaptersTest, AControlDiffersInTheBranchAlone) {
  const std::string control = trained(seeded("kvo_only"), "kvo_only");
  const std::string lora = trained(seeded("lora"), "lora");
  auto asked = seeded();
  auto& gate = add_gate(asked, file_, v1::Gate::AGAINST_KVO_ONLY, control);
  const auto made = submit(asked);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(claim().job().evaluated_adapters(0).id(), control);

  gate.set_adapter(lora);
  refused(asked, "ADAPTER_MISMATCH", "gates[0].adapter", "is of method lora, and the control is");
  gate.set_adapter(control);
  asked.set_seed(6);
  refused(asked, "ADAPTER_MISMATCH", "gates[0].adapter", "seed is 6, and 5 there");
  asked.set_seed(5);
  asked.mutable_hyperparameters()->set_learning_rate(1e-3);
  refused(asked, "ADAPTER_MISMATCH", "gates[0].adapter", "hyperparameters.learning_rate is 0.001");
  asked.mutable_hyperparameters()->clear_learning_rate();
  asked.set_training_file(upload_good(60));
  refused(asked, "ADAPTER_MISMATCH", "gates[0].adapter", "training_file is ");
  asked.set_training_file(training_);
  gate.set_against(v1::Gate::AGAINST_ADAPTER);
  asked.set_seed(6);
  EXPECT_TRUE(submit(asked).ok()) << "as any adapter it may be compared with";
}

TEST_F(GateAdaptersTest, OnesOfOtherWeightsOrAnotherBaseAreRefused) {
  const std::string other = trained(seeded("lora"), "lora");
  std::ofstream(directory_ / "models/models.json") << kTwoBases;
  restart();
  reconnect();
  auto asked = seeded();
  add_gate(asked, file_, v1::Gate::AGAINST_ADAPTER, other);
  refused(asked, "ADAPTER_MISMATCH", "gates[0].adapter", "other weights of small-model");
  asked.set_model("other-model");
  refused(asked, "ADAPTER_MISMATCH", "gates[0].adapter",
          "is one of small-model, not of other-model");
}

TEST_F(GateAdaptersTest, HeadsOfMethodDiffAreComparedWithNobodys) {
  const std::string other = trained(seeded("lora"), "diff");
  auto asked = seeded();
  auto& gate = add_gate(asked, file_, v1::Gate::AGAINST_ADAPTER, other);
  EXPECT_TRUE(submit(asked).ok());
  gate.set_metric("entropy");
  gate.mutable_evaluation()->mutable_head_analysis()->set_file(file_);
  refused(asked, "CONFLICTING_FIELDS", "gates[0].evaluation", "has other heads than its base");
}

}  // namespace
}  // namespace dex::server
