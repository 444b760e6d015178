#include "worker/train/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "tests/unit/worker/train/held_out_rows.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/resolved_preset.h"
#include "worker/evaluate/held_out_loss.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"

namespace dex::train::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

double base_loss(const std::filesystem::path& directory) {
  const auto config = model::load_config(directory / "model");
  const auto weights = model::load_weights(directory / "model", config, {.dtype = at::kFloat});
  const model::Llama llama(config, weights);
  return loss_on_held_out_rows(llama, {});
}

class PresetTest : public JobTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(PresetTest, StartsAtTheBaseAndExportsWhatLoadsBack) {
  const JobSpec spec = resolved_preset(GetParam(), tiny_config(), this->spec(), 3);
  RecordingSession session;
  const Published published = run(spec, session);

  // Step 0 is the base, bit for bit (method.md §10 item 1).
  EXPECT_EQ(published.base_valid_loss, base_loss(directory_.path()));
  EXPECT_EQ(session.numbers("metrics", "step"), (std::vector<double>{1, 2, 3}));
  EXPECT_THAT(session.numbers("export_complete", "maxAbsLogitDiff"), Each(Le(1e-4)));

  const auto config = model::load_config(directory_ / "model");
  const auto adapter = model::load_adapter(
      published.path, {config, model::base_weights_sha256(directory_ / "model")});
  const auto weights = model::load_weights(directory_ / "model", config, {.dtype = at::kFloat});
  const model::Llama llama(config, weights);
  const auto rows = tiny_rows(12, 40, 78);
  EXPECT_EQ(adapter.job_id, "ftjob-test");
  EXPECT_EQ(adapter.adaptation.options.form, spec.dex.form);
  EXPECT_EQ(adapter.adaptation.options.projection, spec.dex.projection);
  EXPECT_EQ(adapter.selected_heads.size(), 2u);
  // What serving would load has the loss that the job published.
  std::vector<std::vector<float>> ones;
  std::vector<evaluate::Document> documents;
  for (size_t r = 0; r < rows.size(); ++r) {
    ones.emplace_back(rows[r].size(), 1.0f);
    if (r % 4 == 3) std::fill_n(ones.back().begin(), rows[r].size() / 2, 0.0f);
  }
  for (size_t r = 0; r < rows.size(); ++r) documents.push_back({rows[r], ones[r]});
  kernels::LinearCrossEntropy cross_entropy;
  const auto held_out = evaluate::held_out_loss(
      llama, adapter.adaptation, evaluate::supervise_in_batches(documents, 512), cross_entropy);
  EXPECT_NEAR(held_out.loss, *published.valid_loss, 1e-5);
  EXPECT_NE(*published.valid_loss, *published.base_valid_loss);
}

INSTANTIATE_TEST_SUITE_P(All, PresetTest, ::testing::ValuesIn(preset_names()),
                         [](const auto& info) { return info.param; });

TEST_F(JobTest, GoesThroughThePhasesInOrder) {
  RecordingSession session;
  run(spec(), session);
  const std::vector<Phase> start(session.phases.begin(), session.phases.begin() + 4);
  EXPECT_THAT(start, ElementsAre(Phase::kLoadingModel, Phase::kLoadingDataset, Phase::kValidating,
                                 Phase::kSelectingHeads));
  const std::vector<Phase> end(session.phases.end() - 3, session.phases.end());
  EXPECT_THAT(end, ElementsAre(Phase::kExporting, Phase::kVerifying, Phase::kFinalizing));
  for (const auto phase : {Phase::kTraining, Phase::kEvaluating, Phase::kSavingCheckpoint}) {
    EXPECT_THAT(session.phases, Contains(phase));
  }
  EXPECT_EQ(session.last.total_steps, 6);
  EXPECT_GT(session.last.host_memory_bytes, 0);
}

TEST_F(JobTest, LearnsAndReportsIt) {
  JobSpec spec = this->spec();
  spec.hyperparameters.max_steps = 60;
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_LT(*published.valid_loss, *published.base_valid_loss - 0.3);
  EXPECT_EQ(session.data("eval_complete").size(), 11u);  // step 0 and ten a run
  EXPECT_EQ(published.method, "dex");
  EXPECT_EQ(published.artifact_class, "KVO");
  EXPECT_EQ(published.added_parameters, 2 * (8 * 8 + 1));
  EXPECT_GT(published.tokens_per_second, 0);
  EXPECT_FALSE(session.data("branch_verdict").empty());
  // Sentences hold rounded numbers, data exact ones.
  for (const Event& event : session.events)
    EXPECT_FALSE(std::regex_search(event.message, std::regex("\\d\\.\\d{5}"))) << event.message;
  std::ifstream metrics(spec.attempt_dir / "metrics.jsonl");
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines)
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_EQ(lines, 60 + 11);
}

// method.md §2.6: on 4,096 tokens or more, where there are as many.
TEST_F(JobTest, TheEffectIsMeasuredOnEnoughTokensOrAllThereAre) {
  const auto tokens_of = [](const std::vector<std::vector<int32_t>>& rows) {
    int64_t tokens = 0;
    for (const auto& row : rows) tokens += static_cast<int64_t>(row.size());
    return tokens;
  };
  RecordingSession few;
  EXPECT_EQ(run(spec("few"), few).branch_effect.tokens, tokens_of(tiny_rows(12, 40, 78)));

  const auto rows = tiny_rows(300, 60, 79);
  ASSERT_GT(tokens_of(rows), 6000);
  write_rows(directory_ / "validation.jsonl", rows);
  JobSpec many = spec("many");
  many.evaluation.max_tokens = 500;
  RecordingSession session;
  const int64_t tokens = run(many, session).branch_effect.tokens;
  EXPECT_GE(tokens, 4096);
  EXPECT_LT(tokens, 4096 + 60);  // the row that crosses the limit is the last
}

// method.md §4.6, from the norms that the job's events have.
TEST_F(JobTest, ReportsTheGradientRangeAfterWarmUp) {
  JobSpec spec = this->spec();
  spec.hyperparameters.max_steps = 43;
  spec.hyperparameters.warmup_ratio = 0.05;  // 2 updates
  RecordingSession session;
  const Published published = run(spec, session);
  auto norms = session.numbers("metrics", "gradNorm");
  ASSERT_EQ(norms.size(), 43u);
  norms.erase(norms.begin(), norms.begin() + 2);
  std::sort(norms.begin(), norms.end());
  // Of 41 numbers the p-th percentile is the one at 0.4·p.
  ASSERT_TRUE(published.gradient_range.has_value());
  EXPECT_NEAR(*published.gradient_range, (norms[38] - norms[2]) / norms[20], 1e-12);
  const auto config = nlohmann::json::parse(
      bytes_of(std::filesystem::path(published.path) / "adapter_config.json"));
  EXPECT_NE(config.dump().find("\"gradient_range\""), std::string::npos);
}

// An evaluation's point by layer is whole: a reader that takes a step's last point misses nothing.
TEST_F(JobTest, PointsByLayerRepeatTheirStepsFigures) {
  RecordingSession session;
  run(spec(), session);
  const auto points = session.data("metrics");
  ASSERT_EQ(points.back().at("lambda").size(), 2u);
  const auto& ratios = points.back().at("branchRatio");
  ASSERT_EQ(ratios.size(), 2u);
  EXPECT_TRUE(std::any_of(ratios.begin(), ratios.end(), [](const auto& ratio) {
    return ratio.is_number() && ratio.template get<double>() > 0;
  })) << ratios;
  const auto& step = *std::find_if(points.begin(), points.end(), [&](const auto& each) {
    return each.at("step") == points.back().at("step");
  });
  EXPECT_FALSE(step.contains("lambda"));
  for (const char* key :
       {"trainLoss", "gradNorm", "learningRate", "trainedTokens", "tokensPerSecond"})
    EXPECT_EQ(points.back().at(key), step.at(key)) << key;
  EXPECT_GT(points.back().at("tokensPerSecond").get<double>(), 0);
}

TEST_F(JobTest, TheUnbranchedControlReplacesProjectionsOnly) {
  JobSpec spec = this->spec();
  spec.dex.form = model::Form::kNone;
  spec.dex.train = model::Train::kKvoOnly;
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_EQ(published.method, "kvo_only");
  EXPECT_EQ(published.added_parameters, 0);
  EXPECT_EQ(published.branch_effect.verdict, evaluate::BranchEffect::Verdict::kNotApplicable);
  std::set<std::string> names;
  const auto file =
      model::Safetensors::open(std::filesystem::path(published.path) / "adapter_model.safetensors",
                               model::Safetensors::Access::kRead);
  for (const auto& [name, info] : file.tensors())
    names.insert(name.substr(name.rfind("self_attn.") + 10));
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("k_proj.weight", "v_proj.weight", "o_proj.weight"));
}

TEST_F(JobTest, DexOnlyKeepsTheProjections) {
  JobSpec spec = this->spec();
  spec.dex.train = model::Train::kDexOnly;
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_EQ(published.artifact_class, "LIGHT");
  EXPECT_EQ(published.trained_parameters, 2 * (8 * 8 + 1));
  EXPECT_NE(published.valid_loss, published.base_valid_loss);
}

// method.md §10 item 15: 1×8 = 8×1 = 4×2 = 2×4 packs of unequal lengths, to rounding.
TEST_F(JobTest, HowAnUpdateIsCutChangesOnlyRounding) {
  struct Cut {
    std::vector<double> losses, norms;
    std::map<std::string, at::Tensor> published;
  };
  std::vector<Cut> cuts;
  for (const int32_t micro : {1, 2, 4, 8}) {
    JobSpec spec = this->spec("cut-" + std::to_string(micro));
    spec.hyperparameters.batch_size = 8;
    spec.hyperparameters.micro_batch_size = micro;
    RecordingSession session;
    const Published out = run(spec, session);
    Cut& cut = cuts.emplace_back();
    cut.losses = session.numbers("metrics", "trainLoss");
    cut.norms = session.numbers("metrics", "gradNorm");
    const auto file =
        model::Safetensors::open(std::filesystem::path(out.path) / "adapter_model.safetensors",
                                 model::Safetensors::Access::kRead);
    for (const auto& [name, info] : file.tensors()) cut.published[name] = file.tensor(name).clone();
  }
  const Cut& whole = cuts.back();
  ASSERT_EQ(whole.losses.size(), 6u);
  ASSERT_EQ(whole.published.size(), 2u * 5);  // K, V, O, w_d, λ_learn
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    for (size_t u = 0; u < whole.losses.size(); ++u) {
      EXPECT_NEAR(cuts[i].losses[u], whole.losses[u], 1e-5 * whole.losses[u]) << i << " " << u;
      EXPECT_NEAR(cuts[i].norms[u], whole.norms[u], 1e-4 * whole.norms[u]) << i << " " << u;
    }
    for (const auto& [name, tensor] : whole.published) {
      // An update moves an entry by up to 3e-3.
      const double off = (cuts[i].published.at(name) - tensor).abs().max().item<double>();
      EXPECT_LE(off, 1e-5) << i << " " << name;
    }
  }
}

// method.md §10 item 3, its middle. Its "left-padded = unpadded" has nothing to compare here: there
// is no padding anywhere in engine or trainer. A Batch (model/llama.h) and the engine's rows are
// documents one after another, each with its own positions and bounds, and no token stands for
// none.
TEST_F(JobTest, PackedRowsTrainAsSeparateOnes) {
  std::vector<std::vector<double>> losses, norms;
  for (const bool packing : {true, false}) {
    JobSpec spec = this->spec(packing ? "packed" : "separate");
    spec.hyperparameters.packing = packing;
    spec.hyperparameters.batch_size = 64;  // every update sees all rows, however they are packed
    spec.hyperparameters.micro_batch_size = 8;
    RecordingSession session;
    run(spec, session);
    losses.push_back(session.numbers("metrics", "trainLoss"));
    norms.push_back(session.numbers("metrics", "gradNorm"));
  }
  for (size_t u = 0; u < losses[0].size(); ++u) {
    EXPECT_NEAR(losses[1][u], losses[0][u], 1e-5 * losses[0][u]);
    EXPECT_NEAR(norms[1][u], norms[0][u], 1e-4 * norms[0][u]);
  }
}

TEST_F(JobTest, ReselectionEndsWithWholeMasksAndIsLogged) {
  JobSpec spec = resolved_preset("multilingual", tiny_config(), this->spec(), 40);
  spec.heads.tau = 0.2;
  spec.reselect_every = 5;
  RecordingSession session;
  const Published published = run(spec, session);
  EXPECT_EQ(session.numbers("head_selection_complete", "step"),
            (std::vector<double>{0, 5, 10, 15, 20, 25, 30}));
  const auto log = nlohmann::json::parse(bytes_of(spec.attempt_dir / "head_selection.json"));
  EXPECT_EQ(log.size(), 7u);
  EXPECT_EQ(log[0].at("rule").at("criterion"), "THRESHOLD");
  EXPECT_EQ(log[0].at("calibration").at("sequences"), 8);
  EXPECT_THAT(bytes_of(spec.attempt_dir / "head_selection.svg"),
              HasSubstr("Heads chosen before step 31"));
  EXPECT_FALSE(published.path.empty());
}

// method.md §2.4: between what rounding explains and what it can't, the job says so. Logits and
// their rounding grow with the weight of the last norm.
TEST_F(JobTest, WarnsOfAFoldThatRoundingDoesNotExplain) {
  double largest = 0;
  for (double scale = 1; largest <= 1e-4; scale *= 8) {
    ASSERT_LT(scale, 1e9);
    auto weights = tiny_weights(tiny_config());
    weights.norm.mul_(scale);
    std::filesystem::remove(directory_ / "model" / "model.safetensors");
    model::write_safetensors(directory_ / "model" / "model.safetensors",
                             model::named_weights(weights));
    JobSpec spec = this->spec("scale-" + std::to_string(static_cast<int64_t>(scale)));
    spec.hyperparameters.max_steps = 3;
    RecordingSession session;
    run(spec, session);
    largest = session.data("export_complete").at(0).at("maxAbsLogitDiff");
    bool warned = false;
    for (const auto& warning : session.data("warning"))
      warned = warned || warning.at("code") == "fold_inexact";
    EXPECT_EQ(warned, largest > 1e-4) << scale;
  }
}

TEST_F(JobTest, WarnsOfAClampedAnnealingAndABranchOutOfReach) {
  JobSpec spec = this->spec();
  spec.anneal.steps = 3000;
  spec.hyperparameters.lambda_learning_rate = 1e-4;
  spec.hyperparameters.branch_learning_rate = 1e-4;
  RecordingSession session;
  run(spec, session);
  ASSERT_EQ(session.data("warning").size(), 1u);
  EXPECT_EQ(session.data("warning")[0].at("code"), "annealing_clamped");
  EXPECT_THAT(session.data("warning")[0].at("detail").get<std::string>(),
              HasSubstr("3000 > 6 updates: using 6"));
  EXPECT_TRUE(session.has_advice("branch_out_of_reach"));
  EXPECT_TRUE(session.has_advice("inert"));
}

// method.md §12: T beside its share of N, in the first event and in what is published.
TEST_F(JobTest, SaysTheAnnealingAsAShareOfTheUpdates) {
  const auto start = [](const RecordingSession& session) {
    for (const Event& event : session.events) {
      if (event.type == "training_start") return event.message;
    }
    return std::string();
  };
  const auto metrics = [](const Published& published) {
    const auto file = std::filesystem::path(published.path) / "adapter_config.json";
    return nlohmann::json::parse(bytes_of(file)).at("metrics");
  };
  const JobSpec paper = spec("paper");  // T is half of 6 updates
  RecordingSession session;
  const Published published = run(paper, session);
  EXPECT_THAT(start(session), HasSubstr("6 updates of 4 sequences, annealing over 3 (T/N 0.5), "));
  EXPECT_EQ(metrics(published).at("anneal_steps"), 3);
  EXPECT_EQ(metrics(published).at("anneal_ratio"), 0.5);
  JobSpec constant = spec("constant");
  constant.dex.lambda.schedule = model::Schedule::kConstant;
  constant.dex.lambda.value = 0.1;
  RecordingSession other;
  EXPECT_FALSE(metrics(run(constant, other)).contains("anneal_ratio"));
  EXPECT_THAT(start(other), ::testing::Not(HasSubstr("annealing")));
}

TEST_F(JobTest, RefusesWhatCannotTrainByName) {
  JobSpec dead = spec();
  dead.anneal.steps = 0;
  EXPECT_THAT(failure_of(dead).what(), HasSubstr("branch can't start"));
  EXPECT_EQ(failure_of(dead).exit(), Exit::kBadSpec);
  JobSpec longer = spec();
  longer.hyperparameters.max_seq_length = 300;
  EXPECT_THAT(failure_of(longer).what(),
              HasSubstr("300 is longer than the model's context of 256"));
  JobSpec heads = spec();
  heads.heads.criterion = evaluate::Criterion::kExplicit;
  heads.heads.heads = {{0}, {7}};
  EXPECT_THAT(failure_of(heads).what(), HasSubstr("layer 1: head 7 of 4"));
  JobSpec other = spec();
  other.base_weights_sha256 = std::string(64, '0');
  EXPECT_EQ(failure_of(other).exit(), Exit::kBrokenInput);
  JobSpec missing = spec();
  missing.model_dir = directory_ / "nowhere";
  EXPECT_EQ(failure_of(missing).exit(), Exit::kBrokenInput);
}

TEST_F(JobTest, RefusesBadDataByFileAndLine) {
  const auto with_line = [&](const std::string& line) {
    write_rows(directory_ / "bad.jsonl", tiny_rows(20, 30));
    std::ofstream(directory_ / "bad.jsonl", std::ios::app) << line << '\n';
    JobSpec spec = this->spec();
    spec.skip_budget_ratio = 0;
    spec.training_path = directory_ / "bad.jsonl";
    return failure_of(spec);
  };
  for (const std::string line : {R"({"input_ids": [1, 2, 97], "labels": [1, 2, 97]})",
                                 R"({"input_ids": [1, 2], "labels": [1]})", "not json",
                                 R"({"input_ids": [5, 6, 7], "labels": [-100, -100, -100]})"}) {
    const Failure failure = with_line(line);
    EXPECT_EQ(failure.exit(), Exit::kBadData) << line;
    EXPECT_EQ(failure.code(), "invalid_training_file");
    EXPECT_THAT(failure.what(), HasSubstr("The first: line 21: ")) << line;
  }
  std::ofstream(directory_ / "empty.jsonl").close();
  JobSpec empty = spec();
  empty.training_path = directory_ / "empty.jsonl";
  EXPECT_EQ(failure_of(empty).exit(), Exit::kBadData);
}

TEST_F(JobTest, SplitsHeldOutRowsByContent) {
  write_rows(directory_ / "many.jsonl", tiny_rows(100, 30));
  JobSpec spec = this->spec();
  spec.training_path = directory_ / "many.jsonl";
  spec.validation_path.clear();
  RecordingSession session;
  run(spec, session);
  const auto data = session.data("validation_complete").at(0);
  // A tenth of 100 rows, each by its own content: about ten, at least ten.
  const int held_out = std::stoi(data.at("validRows").get<std::string>());
  EXPECT_GE(held_out, 10);
  EXPECT_LE(held_out, 20);
}

}  // namespace
}  // namespace dex::train::testing
