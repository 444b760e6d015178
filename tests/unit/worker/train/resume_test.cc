#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "services/base/sha256.h"
#include "tests/support/failing_file_layer.h"
#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "tests/unit/worker/train/resolved_preset.h"
#include "worker/train/checkpoint.h"
#include "worker/train/train_state.h"

namespace dex::train::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ResumeTest : public JobTest {
 protected:
  // A job of 40 updates with packing; stopped by `reason` at step `at` if `at` ≥ 0.
  RecordingSession run_until(JobSpec spec, int64_t at, StopReason reason = StopReason::kDrain) {
    RecordingSession session;
    bool told = false;
    session.script = [&, at](const Progress& progress) -> Command {
      if (at < 0 || told || progress.step < at) return {};
      told = true;
      return {Command::Kind::kStop, "", reason};
    };
    if (at < 0) {
      run(spec, session);
    } else {
      EXPECT_THROW(run(spec, session), Stopped);
    }
    session.script = nullptr;
    return session;
  }

  JobSpec long_spec(const std::string& attempt) {
    JobSpec spec = this->spec(attempt);
    spec.hyperparameters.max_steps = 40;
    return spec;
  }

  void expect_same_bits(const fs::path& a, const fs::path& b) {
    const bool whole = fs::exists(a / "final/model.safetensors");  // all weights were trained
    for (const char* file :
         {whole ? "final/model.safetensors" : "final/adapter_model.safetensors",
          "step-40/adapter.safetensors", "step-40/optimizer.safetensors", "step-40/state.json"}) {
      EXPECT_TRUE(bytes_of(a / file) == bytes_of(b / file)) << file;
    }
  }
};

// What a version before early stopping wrote: its paused jobs go on after an upgrade.
TEST(TrainStateTest, AStateWithoutEarlyStoppingIsThatOfAJobWithoutIt) {
  TrainState state;
  state.step = 3;
  auto old = nlohmann::json::parse(to_json(state));
  ASSERT_EQ(old.erase("early_stopping"), 1U);
  ASSERT_EQ(old.erase("best_masks"), 1U);
  const TrainState read = state_from_json(old.dump());
  EXPECT_EQ(read.step, 3);
  EXPECT_EQ(read.early, EarlyStopping::State{});
}

// A cast would make some step of them, and the job would go on from there.
TEST(TrainStateTest, NumbersThatAreNoneOrTooLargeAreRefusedByTheirKey) {
  const auto refusal = [](const std::string& key, const nlohmann::json& value) {
    auto state = nlohmann::json::parse(to_json(TrainState{}));
    (key == "rollbacks" ? state["watchdog"] : state)[key] = value;
    try {
      state_from_json(state.dump());
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("step", 1e300), ::testing::HasSubstr("step must be a whole number"));
  EXPECT_THAT(refusal("trained_tokens", 1.5), ::testing::HasSubstr("trained_tokens must be"));
  EXPECT_THAT(refusal("step", UINT64_MAX), ::testing::HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(refusal("rollbacks", int64_t{1} << 40), ::testing::HasSubstr("rollbacks must be"));
  EXPECT_THAT(refusal("masks", nlohmann::json::parse("[[[0, 1, 0.5]]]")),
              ::testing::HasSubstr("masks must be"));
  EXPECT_EQ(refusal("step", 7), "accepted");
}

TEST(TrainStateTest, NormsOfSkippedUpdatesComeBackAsSuch) {
  TrainState state;
  state.grad_norms = {1.5, std::nan(""), 0.25};
  const std::string text = to_json(state);
  const TrainState read = state_from_json(text);
  ASSERT_EQ(read.grad_norms.size(), 3U);
  EXPECT_EQ(read.grad_norms[0], 1.5);
  EXPECT_TRUE(std::isnan(read.grad_norms[1]));
  EXPECT_EQ(read.grad_norms[2], 0.25);
  EXPECT_EQ(to_json(read), text);
}

struct Case {
  std::string preset;
  int threads;
};
class ExactResumeTest : public ResumeTest, public ::testing::WithParamInterface<Case> {};

TEST_P(ExactResumeTest, SeventeenUpdatesAndTheRestGiveTheBitsOfForty) {
  const auto configured = [&](const std::string& attempt) {
    JobSpec spec = resolved_preset(GetParam().preset, tiny_config(), long_spec(attempt), 40);
    if (spec.reselect_every > 0) spec.reselect_every = 6;  // the ramps of 16 are under way at 17
    spec.threads = GetParam().threads;
    return spec;
  };
  at::set_num_threads(GetParam().threads);
  run_until(configured("straight"), -1);
  const auto stopped = run_until(configured("first"), 17);
  ASSERT_FALSE(stopped.checkpoints.empty());
  EXPECT_EQ(stopped.checkpoints.back().step, 17);
  JobSpec second = configured("second");
  second.attempt = 2;
  second.checkpoint_dir = stopped.checkpoints.back().path;
  second.checkpoint_manifest_sha256 = stopped.checkpoints.back().manifest_sha256;
  const auto resumed = run_until(second, -1);
  EXPECT_EQ(resumed.data("training_start").at(0).at("resumedFromStep"), 17);
  EXPECT_EQ(resumed.numbers("metrics", "step").front(), 18);
  expect_same_bits(directory_ / "straight", directory_ / "second");
  at::set_num_threads(1);
}

INSTANTIATE_TEST_SUITE_P(All, ExactResumeTest,
                         ::testing::Values(Case{"paper", 1}, Case{"paper", 2}, Case{"small", 1},
                                           Case{"multilingual", 2}),
                         [](const auto& info) {
                           return info.param.preset + std::to_string(info.param.threads) +
                                  "threads";
                         });

class ExactResumeOfMethodTest : public ResumeTest,
                                public ::testing::WithParamInterface<model::Train> {};

TEST_P(ExactResumeOfMethodTest, SeventeenUpdatesAndTheRestGiveTheBitsOfForty) {
  const auto configured = [&](const std::string& attempt) {
    JobSpec spec = long_spec(attempt);
    choose(GetParam(), spec);
    return spec;
  };
  run_until(configured("straight"), -1);
  const auto stopped = run_until(configured("first"), 17);
  ASSERT_FALSE(stopped.checkpoints.empty());
  JobSpec second = configured("second");
  second.checkpoint_dir = stopped.checkpoints.back().path;
  EXPECT_EQ(run_until(second, -1).numbers("metrics", "step").front(), 18);
  expect_same_bits(directory_ / "straight", directory_ / "second");
}

INSTANTIATE_TEST_SUITE_P(Trains, ExactResumeOfMethodTest, ::testing::ValuesIn(kOtherTrains),
                         [](const auto& info) { return test_name(info.param); });

TEST_F(ResumeTest, EveryPlaceToStopIsExact) {
  run_until(long_spec("straight"), -1);
  // 0: before the first update; 4: at an evaluation; 39: before the last.
  for (const int64_t at : {1, 4, 5, 39}) {
    const std::string name = std::to_string(at);
    const auto stopped = run_until(long_spec("first" + name), at);
    JobSpec second = long_spec("second" + name);
    second.checkpoint_dir = stopped.checkpoints.back().path;
    run_until(second, -1);
    expect_same_bits(directory_ / "straight", directory_ / ("second" + name));
  }
}

// Takes the norms out of a checkpoint's state, as a version before the gradient range left it.
void forget_norms(const fs::path& checkpoint) {
  auto state = nlohmann::json::parse(bytes_of(checkpoint / "state.json"));
  ASSERT_EQ(state.erase("grad_norms"), 1U);
  std::ofstream(checkpoint / "state.json") << state.dump(1);
  auto manifest = nlohmann::json::parse(bytes_of(checkpoint / "MANIFEST.json"));
  for (auto& file : manifest.at("files")) {
    if (file.at("name") != "state.json") continue;
    file["size"] = fs::file_size(checkpoint / "state.json");
    file["sha256"] = *base::sha256_file(checkpoint / "state.json");
  }
  std::ofstream(checkpoint / "MANIFEST.json") << manifest.dump(1);
}

TEST_F(ResumeTest, TheGradientRangeIsThatOfAllUpdatesOrNone) {
  RecordingSession session;
  const Published straight = run(long_spec("straight"), session);
  ASSERT_TRUE(straight.gradient_range.has_value());
  const auto stopped = run_until(long_spec("first"), 17);
  JobSpec second = long_spec("second");
  second.checkpoint_dir = stopped.checkpoints.back().path;
  EXPECT_EQ(run(second, session).gradient_range, straight.gradient_range);
  forget_norms(second.checkpoint_dir);
  JobSpec third = long_spec("third");
  third.checkpoint_dir = second.checkpoint_dir;
  EXPECT_FALSE(run(third, session).gradient_range.has_value());
}

TEST_F(ResumeTest, CancelEndsAtOnceAndPauseSavesFirst) {
  const auto cancelled = run_until(long_spec("cancelled"), 5, StopReason::kCancel);
  const auto paused = run_until(long_spec("paused"), 5, StopReason::kPause);
  EXPECT_EQ(paused.checkpoints.back().step, 5);
  EXPECT_NE(cancelled.checkpoints.back().step, 5);
}

TEST_F(ResumeTest, ARequestedCheckpointIsWrittenAtTheNextBoundaryAndAnswered) {
  RecordingSession session;
  bool asked = false;
  session.script = [&](const Progress& progress) -> Command {
    if (asked || progress.step < 7) return {};
    asked = true;
    return {Command::Kind::kCheckpoint, "request-1", {}};
  };
  run(long_spec("requested"), session);
  const auto answer = std::find_if(session.checkpoints.begin(), session.checkpoints.end(),
                                   [](const auto& each) { return each.request == "request-1"; });
  ASSERT_NE(answer, session.checkpoints.end());
  EXPECT_LE(answer->step, 8);
  EXPECT_EQ(*base::sha256_file(fs::path(answer->path) / "MANIFEST.json"), answer->manifest_sha256);
}

// A checkpoint as older versions wrote it: today's without what has come since. Each entry takes
// away one addition more, so the last one is the first version's folder, of commit 70e9081.
constexpr const char* kLibrary = "the library of products";
struct OlderVersion {
  const char* lacks;
  std::vector<std::string> state, manifest, identity;  // keys
};
const std::vector<OlderVersion>& older_versions() {
  static const std::vector<OlderVersion> versions = {
      {"norms of all updates", {"grad_norms"}, {}, {}},
      {"the adapter that it began with", {}, {}, {"start_adapter_sha256"}},
      {"early stopping", {"early_stopping", "best_masks"}, {}, {}},
      // It came last, but without it sums may differ, and then bits can't be compared any more.
      {kLibrary, {}, {"gemm"}, {}}};
  return versions;
}

void take_away(const OlderVersion& version, const fs::path& checkpoint) {
  auto state = nlohmann::json::parse(bytes_of(checkpoint / "state.json"));
  for (const auto& key : version.state) ASSERT_EQ(state.erase(key), 1U) << key;
  std::ofstream(checkpoint / "state.json") << state.dump(1);
  auto manifest = nlohmann::json::parse(bytes_of(checkpoint / "MANIFEST.json"));
  for (const auto& key : version.manifest) ASSERT_EQ(manifest.erase(key), 1U) << key;
  for (const auto& key : version.identity) ASSERT_EQ(manifest.at("identity").erase(key), 1U) << key;
  for (auto& file : manifest.at("files")) {
    if (file.at("name") != "state.json") continue;
    file["size"] = fs::file_size(checkpoint / "state.json");
    file["sha256"] = *base::sha256_file(checkpoint / "state.json");
  }
  std::ofstream(checkpoint / "MANIFEST.json") << manifest.dump(1);
}

// Jobs that were paused before an upgrade go on after it as if there had been none.
TEST_F(ResumeTest, FoldersOfOlderVersionsGoOnToTheSameBits) {
  run_until(long_spec("straight"), -1);
  const auto stopped = run_until(long_spec("first"), 17);
  const fs::path folder = stopped.checkpoints.back().path;
  const auto now = nlohmann::json::parse(bytes_of(folder / "MANIFEST.json"));
  // Without a name it is the one that was there before there was a choice.
  const bool always_this = now.at("gemm") == Geometry{}.gemm;
  for (const OlderVersion& version : older_versions()) {
    take_away(version, folder);
    JobSpec second = long_spec(std::string("without ") + version.lacks);
    second.checkpoint_dir = folder;
    run_until(second, -1);
    for (const char* file : {"final/adapter_model.safetensors", "step-40/adapter.safetensors",
                             "step-40/optimizer.safetensors"}) {
      const fs::path path = second.attempt_dir / file;
      ASSERT_TRUE(fs::exists(path)) << path;
      if (version.lacks == kLibrary && !always_this) continue;
      EXPECT_TRUE(bytes_of(directory_ / "straight" / file) == bytes_of(path))
          << version.lacks << ": " << file;
    }
  }
}

TEST_F(ResumeTest, RefusesAnotherSpecBaseOrDataByName) {
  const auto stopped = run_until(long_spec("first"), 5);
  const auto resumed = [&] {
    JobSpec spec = long_spec("second");
    spec.checkpoint_dir = stopped.checkpoints.back().path;
    return spec;
  };
  JobSpec other = resumed();
  other.spec_sha256 = std::string(64, 'b');
  EXPECT_EQ(failure_of(other).exit(), Exit::kBadSpec);
  EXPECT_THAT(failure_of(other).what(), HasSubstr("spec_sha256"));

  JobSpec data = resumed();
  write_rows(directory_ / "other.jsonl", tiny_rows(61, 40));
  data.training_path = directory_ / "other.jsonl";
  EXPECT_EQ(failure_of(data).exit(), Exit::kBadData);
  EXPECT_THAT(failure_of(data).what(), HasSubstr("training_sha256"));

  JobSpec base = resumed();
  base.model_dir = other_base();
  // Its owner's to decide; no worker goes out of service over it.
  EXPECT_EQ(failure_of(base).exit(), Exit::kBadSpec);
  EXPECT_EQ(failure_of(base).code(), "adapter_mismatch");
  EXPECT_THAT(failure_of(base).what(), HasSubstr("base_weights_sha256"));
  EXPECT_THAT(failure_of(base).what(), HasSubstr("Create the job again"));

  JobSpec manifest = resumed();
  manifest.checkpoint_manifest_sha256 = std::string(64, 'c');
  EXPECT_EQ(failure_of(manifest).exit(), Exit::kBrokenCheckpoint);
}

TEST_F(ResumeTest, RefusesDamagedCheckpoints) {
  const auto stopped = run_until(long_spec("first"), 5);
  const fs::path good = stopped.checkpoints.back().path;
  const auto damaged = [&](const std::function<void(const fs::path&)>& damage) {
    const fs::path copy = directory_ / "damaged";
    fs::remove_all(copy);
    fs::copy(good, copy, fs::copy_options::recursive);
    damage(copy);
    JobSpec spec = long_spec("second");
    spec.checkpoint_dir = copy;
    return failure_of(spec);
  };
  for (const char* file : {"adapter.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(damaged([&](const fs::path& copy) {
                fs::resize_file(copy / file, fs::file_size(copy / file) - 1);
              }).exit(),
              Exit::kBrokenCheckpoint);
    EXPECT_EQ(damaged([&](const fs::path& copy) {
                std::fstream out(copy / file, std::ios::in | std::ios::out | std::ios::binary);
                out.seekp(static_cast<int64_t>(fs::file_size(copy / file)) - 20);
                out.put('~');
              }).exit(),
              Exit::kBrokenCheckpoint);
    EXPECT_EQ(damaged([&](const fs::path& copy) { fs::remove(copy / file); }).exit(),
              Exit::kBrokenCheckpoint);
  }
  EXPECT_EQ(damaged([&](const fs::path& copy) { fs::remove(copy / "MANIFEST.json"); }).exit(),
            Exit::kBrokenCheckpoint);
  EXPECT_EQ(
      damaged([&](const fs::path& copy) { std::ofstream(copy / "MANIFEST.json") << "{"; }).exit(),
      Exit::kBrokenCheckpoint);
}

// A full disk refuses what adds to it: taking old checkpoints away goes on working, and closing a
// directory that was synced has nothing left to fail.
class FullDisk final : public support::FailingFileLayer {
 public:
  explicit FullDisk(int fail_at) : FailingFileLayer(fail_at, ENOSPC, false) {}
  int unlink(const char* path) override { return FileLayer::unlink(path); }
  int rmdir(const char* path) override { return FileLayer::rmdir(path); }
  int close(int fd) override {
    struct stat about {};
    const bool directory = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
    return directory ? FileLayer::close(fd) : FailingFileLayer::close(fd);
  }
};

TEST_F(ResumeTest, AFullDiskLeavesTheLastGoodCheckpoint) {
  const auto short_spec = [&](const std::string& attempt) {
    JobSpec spec = this->spec(attempt);
    spec.hyperparameters.max_steps = 12;
    spec.evaluation.every_steps = 12;
    spec.checkpoints.every_steps = 4;
    return spec;
  };
  // Calls of the first two checkpoints, counted on a job that ends there.
  FullDisk counting(1 << 30);
  RecordingSession two;
  bool asked = false;  // once: the trainer takes commands until there are no more
  two.script = [&](const Progress& progress) -> Command {
    if (asked || progress.step < 8) return {};
    asked = true;
    return {Command::Kind::kStop, "", StopReason::kDrain};
  };
  EXPECT_THROW(run(short_spec("counted"), two, counting), Stopped);
  ASSERT_EQ(two.checkpoints.size(), 2u);
  const int calls = counting.calls();

  // Each call of the third checkpoint's writing fails in turn.
  RecordingSession undisturbed;
  run(short_spec("straight"), undisturbed);
  for (int call = calls + 1; call <= calls + calls / 2; ++call) {
    const std::string attempt = "full-" + std::to_string(call);
    FullDisk files(call);
    RecordingSession session;
    const Failure failure = failure_of(short_spec(attempt), session, files);
    EXPECT_EQ(failure.exit(), Exit::kDiskFull) << call;
    EXPECT_EQ(failure.code(), "disk_full");
    ASSERT_EQ(session.checkpoints.size(), 2u) << call;
    EXPECT_EQ(session.checkpoints.back().step, 8);
    for (const auto& entry : fs::directory_iterator(directory_ / attempt)) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
    if (call > calls + 1) continue;
    JobSpec second = short_spec("after-full");
    second.checkpoint_dir = session.checkpoints.back().path;
    RecordingSession resumed;
    run(second, resumed);
    EXPECT_TRUE(bytes_of(directory_ / "straight/step-12/optimizer.safetensors") ==
                bytes_of(directory_ / "after-full/step-12/optimizer.safetensors"));
  }
}

TEST_F(ResumeTest, KeepsTheLastTwoAndTheBestOnceTheyAreOld) {
  // The clock stands still but for a minute at each poll, so every checkpoint is old when the next
  // one comes.
  support::TemporaryDirectory unused;
  struct FastClock final : base::Clock {
    int64_t now_ms() const override { return 0; }
    int64_t steady_ms() const override { return ms += 61'000; }
    mutable int64_t ms = 0;
  } clock;
  JobSpec spec = long_spec("pruned");
  spec.checkpoints.every_seconds = 1e12;
  RecordingSession session;
  fs::create_directories(spec.attempt_dir);
  run_job(spec, session, clock);
  std::vector<std::string> kept;
  for (const auto& entry : fs::directory_iterator(spec.attempt_dir)) {
    if (entry.path().filename().string().starts_with("step-"))
      kept.push_back(entry.path().filename());
  }
  EXPECT_THAT(kept, ::testing::Contains("step-40"));
  EXPECT_THAT(kept, ::testing::Contains("step-36"));
  EXPECT_LE(kept.size(), 3u);
}

TEST_F(ResumeTest, NonFiniteUpdatesAreSkippedRolledBackOnceThenEndTheJob) {
  JobSpec spec = long_spec("diverging");
  spec.hyperparameters.learning_rate = 1e30;
  spec.checkpoints.every_steps = 1;
  RecordingSession session;
  const Failure failure = failure_of(spec, session);
  EXPECT_EQ(failure.exit(), Exit::kNonFinite);
  EXPECT_EQ(failure.code(), "non_finite_loss");
  EXPECT_THAT(failure.what(), HasSubstr("step-"));
  std::vector<std::string> actions;
  for (const auto& each : session.data("watchdog")) actions.push_back(each.at("action"));
  EXPECT_EQ(actions,
            (std::vector<std::string>{"SKIP", "SKIP", "ROLLBACK", "SKIP", "SKIP", "FAIL"}));
}

// The checkpoint that such an end names is whole and untouched: at sane rates the job goes on from
// it as if nothing had happened.
TEST_F(ResumeTest, TheLastGoodCheckpointGoesOnAfterANonFiniteEnd) {
  run_until(long_spec("straight"), -1);
  const auto stopped = run_until(long_spec("first"), 17);
  const auto from_there = [&](const std::string& attempt) {
    JobSpec spec = long_spec(attempt);
    spec.attempt = 2;
    spec.checkpoint_dir = stopped.checkpoints.back().path;
    spec.checkpoint_manifest_sha256 = stopped.checkpoints.back().manifest_sha256;
    return spec;
  };
  JobSpec diverging = from_there("second");
  diverging.hyperparameters.learning_rate = 1e30;
  diverging.checkpoints.every_steps = 1000;  // none of what has diverged
  const Failure failure = failure_of(diverging);
  EXPECT_EQ(failure.exit(), Exit::kNonFinite);
  EXPECT_EQ(failure.code(), "non_finite_loss");
  EXPECT_THAT(failure.what(), HasSubstr("last good checkpoint: step-17"));
  EXPECT_FALSE(fs::exists(directory_ / "second/final"));
  const auto resumed = run_until(from_there("third"), -1);
  EXPECT_EQ(resumed.data("training_start").at(0).at("resumedFromStep"), 17);
  expect_same_bits(directory_ / "straight", directory_ / "third");
}

}  // namespace
}  // namespace dex::train::testing
