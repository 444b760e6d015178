// The store alone: what stays, what is never written over, and what a death at any call leaves.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "services/base/sha256.h"
#include "tests/support/figures.h"
#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "worker/train/checkpoint.h"
#include "worker/train/failure.h"

namespace dex::train {
namespace {

using ::testing::ElementsAre;
namespace fs = std::filesystem;

constexpr int64_t kOldMs = 61'000;  // the store keeps what is younger than a minute

// Two trained tensors, whose values tell which checkpoint they come from.
class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStoreTest() { at::set_num_threads(1); }

  CheckpointStore store(const fs::path& directory,
                        base::FileLayer& files = base::system_files()) const {
    CheckpointStore::Options options;
    options.directory = directory;
    options.identity.spec_sha256 = "spec";
    return {options, clock_, files};
  }
  // Saves `step` with every value `value`, a little more than a minute after what came before.
  SavedCheckpoint save(CheckpointStore& store, int64_t step, double value, bool best = false) {
    clock_.advance_ms(kOldMs);
    parameters_.copy_values_from(at::full_like(parameters_.values(), value));
    TrainState state;
    state.step = step;
    return store.save(state, parameters_, optimizer_, at::Tensor(), best);
  }
  LoadedCheckpoint load(const fs::path& directory, const std::string& manifest_sha256 = "") const {
    Identity identity;
    identity.spec_sha256 = "spec";
    return load_checkpoint(directory, manifest_sha256, identity, parameters_);
  }
  double value_in(const fs::path& directory, const std::string& manifest_sha256 = "") const {
    const LoadedCheckpoint loaded = load(directory, manifest_sha256);
    const auto& piece = parameters_.pieces().back();
    return FlatParameters::view(loaded.values, piece)[0].item<double>();
  }
  std::set<std::string> kept() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      names.insert(entry.path().filename().string());
    return names;
  }

  mutable support::ManualClock clock_;
  support::TemporaryDirectory directory_;
  at::Tensor matrix_ = at::zeros({4, 3}, at::kFloat), vector_ = at::zeros({5}, at::kFloat);
  FlatParameters parameters_{
      std::vector<model::Trainable>{{"layer.matrix", model::Group::kBase, &matrix_},
                                    {"layer.vector", model::Group::kBase, &vector_}}};
  AdamW optimizer_{parameters_, {}};
};

// In an outage the job goes on pointing to what the last answered beat named, however many are
// saved meanwhile, and perhaps to what the beat without an answer names.
TEST_F(CheckpointStoreTest, WhatTheJobPointsToStaysHoweverOldItIs) {
  auto store = this->store(directory_.path());
  const fs::path first = save(store, 1, 1).path;
  const fs::path second = save(store, 2, 2).path;
  store.hold({.acknowledged = first, .offered = second});
  for (int step = 3; step <= 8; ++step) save(store, step, step);
  EXPECT_THAT(kept(), ElementsAre("step-1", "step-2", "step-7", "step-8"));
  EXPECT_EQ(value_in(first), 1);

  store.hold({.acknowledged = directory_ / "step-8", .offered = {}});
  save(store, 9, 9);
  save(store, 10, 10);
  save(store, 11, 11);
  EXPECT_THAT(kept(), ElementsAre("step-10", "step-11", "step-8"));
}

TEST_F(CheckpointStoreTest, TheWayBackStays) {
  auto store = this->store(directory_.path());
  store.hold({.acknowledged = {}, .offered = {}, .way_back = save(store, 1, 1).path});
  for (int step = 2; step <= 5; ++step) save(store, step, step);
  EXPECT_THAT(kept(), ElementsAre("step-1", "step-4", "step-5"));
}

TEST_F(CheckpointStoreTest, PointersToOtherAttemptsHoldNothing) {
  auto store = this->store(directory_.path());
  store.hold({.acknowledged = "/elsewhere/attempt-1/step-1", .offered = {}, .way_back = {}});
  for (int step = 1; step <= 4; ++step) save(store, step, step);
  EXPECT_THAT(kept(), ElementsAre("step-3", "step-4"));
}

// A path is the same however it is written.
TEST_F(CheckpointStoreTest, APointerMayBeWrittenInAnotherWay) {
  auto store = this->store(directory_ / ".");
  save(store, 1, 1);
  store.hold({.acknowledged = directory_.path() / "x" / ".." / "step-1", .offered = {}});
  for (int step = 2; step <= 4; ++step) save(store, step, step);
  EXPECT_THAT(kept(), ElementsAre("step-1", "step-3", "step-4"));
}

// The job may point to the first one: its bytes must not become others under the same hash.
TEST_F(CheckpointStoreTest, AStepThatIsSavedAgainGetsANewName) {
  auto store = this->store(directory_.path());
  save(store, 1, 1);
  const SavedCheckpoint before = save(store, 2, 2);
  store.hold({.acknowledged = before.path, .offered = {}});
  store.go_back(1, -1);
  ASSERT_NE(store.last(), nullptr);
  EXPECT_EQ(store.last()->step, 1);
  const SavedCheckpoint again = save(store, 2, 20);
  EXPECT_EQ(again.path.filename().string(), "step-2-2");
  EXPECT_EQ(store.last()->manifest_sha256, again.manifest_sha256);
  EXPECT_EQ(value_in(again.path, again.manifest_sha256), 20);
  store.go_back(1, -1);
  const SavedCheckpoint third = save(store, 2, 200);
  EXPECT_EQ(third.path.filename().string(), "step-2-3");
  EXPECT_EQ(value_in(third.path, third.manifest_sha256), 200);
  EXPECT_EQ(value_in(before.path, before.manifest_sha256), 2);

  // After a run before in the same directory, of which a store knows nothing.
  auto other = this->store(directory_.path());
  const SavedCheckpoint foreign = save(other, 2, 7);
  EXPECT_EQ(foreign.path.filename().string(), "step-2-2") << "free since it was tidied away";
  EXPECT_EQ(value_in(before.path, before.manifest_sha256), 2);
}

TEST_F(CheckpointStoreTest, AWayThatIsLeftCountsNeitherAsLastNorAsBest) {
  auto store = this->store(directory_.path());
  store.hold({.acknowledged = {}, .offered = {}, .way_back = save(store, 1, 1, true).path});
  save(store, 2, 2);
  save(store, 3, 3, true);
  store.hold({});
  store.go_back(2, 1);
  EXPECT_EQ(store.last()->step, 2);
  save(store, 4, 4);
  EXPECT_THAT(kept(), ElementsAre("step-1", "step-2", "step-4")) << "step-3 was the best";
  save(store, 5, 5);
  EXPECT_THAT(kept(), ElementsAre("step-1", "step-4", "step-5"));
}

TEST_F(CheckpointStoreTest, TheYoungStay) {
  auto store = this->store(directory_.path());
  for (int step = 1; step <= 4; ++step) {
    save(store, step, step);
    clock_.advance_ms(1'000 - kOldMs);
  }
  EXPECT_EQ(kept().size(), 4U);
}

// What is missing or has other bytes is broken for good, and is told from what another try may
// read.
TEST_F(CheckpointStoreTest, BrokenOnesHaveAnExitCodeOfTheirOwn) {
  auto store = this->store(directory_.path());
  const SavedCheckpoint saved = save(store, 1, 1);
  const auto exit_of = [&](const std::string& hash) {
    try {
      load(saved.path, hash);
    } catch (const Failure& failure) {
      return failure.exit();
    }
    return Exit::kSuccess;
  };
  EXPECT_EQ(exit_of(saved.manifest_sha256), Exit::kSuccess);
  EXPECT_EQ(exit_of(std::string(64, '0')), Exit::kBrokenCheckpoint);
  fs::resize_file(saved.path / "optimizer.safetensors", 10);
  EXPECT_EQ(exit_of(saved.manifest_sha256), Exit::kBrokenCheckpoint);
  fs::remove_all(saved.path);
  EXPECT_EQ(exit_of(saved.manifest_sha256), Exit::kBrokenCheckpoint);
}

// A base or a template that was changed while a job waited would otherwise empty the platform slot
// by slot.
TEST_F(CheckpointStoreTest, NothingThatWasChangedSinceIsTheWorkersFault) {
  auto store = this->store(directory_.path());
  const fs::path path = save(store, 1, 1).path;
  const auto exit_of = [&](std::string Identity::*changed) {
    Identity identity;
    identity.spec_sha256 = "spec";
    identity.*changed = "another";
    try {
      load_checkpoint(path, "", identity, parameters_);
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), ::testing::HasSubstr("was made with another"));
      return failure.exit();
    }
    return Exit::kSuccess;
  };
  EXPECT_EQ(exit_of(&Identity::base_weights_sha256), Exit::kBadSpec);
  EXPECT_EQ(exit_of(&Identity::tokenizer_sha256), Exit::kRetryable);
  EXPECT_EQ(exit_of(&Identity::chat_template_sha256), Exit::kRetryable);
  EXPECT_EQ(exit_of(&Identity::start_adapter_sha256), Exit::kRetryable);
  EXPECT_EQ(exit_of(&Identity::spec_sha256), Exit::kBadSpec);
  EXPECT_EQ(exit_of(&Identity::training_sha256), Exit::kBadData);
}

constexpr int kDied = 42, kThrew = 43;

// The process dies in the n-th call, as by kill -9: nothing is cleaned up, and of a write half of
// the bytes are there.
class DyingFiles final : public base::FileLayer {
 public:
  explicit DyingFiles(int at) : at_(at) {}

  int open(const char* path, int flags, mode_t mode) override {
    count();
    return FileLayer::open(path, flags, mode);
  }
  ssize_t write(int fd, const void* data, size_t size) override {
    if (calls_ + 1 == at_) (void)!FileLayer::write(fd, data, size / 2);
    count();
    return FileLayer::write(fd, data, size);
  }
  int fsync(int fd) override {
    count();
    return FileLayer::fsync(fd);
  }
  int close(int fd) override {
    count();
    return FileLayer::close(fd);
  }
  int mkdir(const char* path, mode_t mode) override {
    count();
    return FileLayer::mkdir(path, mode);
  }
  int rename(const char* from, const char* to) override {
    count();
    return FileLayer::rename(from, to);
  }
  int unlink(const char* path) override {
    count();
    return FileLayer::unlink(path);
  }
  int rmdir(const char* path) override {
    count();
    return FileLayer::rmdir(path);
  }

 private:
  void count() {
    if (++calls_ == at_) ::_exit(kDied);
  }

  const int at_;
  int calls_ = 0;
};

class CheckpointDeathTest : public CheckpointStoreTest {
 protected:
  // Saves step 2 beside step 1 in a process of its own, which dies at that call. Its exit code.
  int save_and_die(const fs::path& attempt, int call) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        DyingFiles files(call);
        auto store = this->store(attempt, files);
        save(store, 2, 2);
      } catch (const std::exception&) {
        ::_exit(kThrew);
      }
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

// jobs.md P14: the loader finds the old one or the new one, and the next writer is not hindered.
TEST_F(CheckpointDeathTest, AtEveryCallLeavesTheOldOneOrTheNewOne) {
  int call = 1;
  for (bool finished = false; !finished; ++call) {
    ASSERT_LT(call, 500);
    const fs::path attempt = directory_ / ("attempt-" + std::to_string(call));
    fs::create_directory(attempt);
    auto first = store(attempt);
    save(first, 1, 1);
    const int code = save_and_die(attempt, call);
    finished = code == 0;
    ASSERT_TRUE(finished || code == kDied) << "exit code " << code << " at call " << call;

    EXPECT_EQ(value_in(attempt / "step-1"), 1) << call;
    const bool there = fs::exists(attempt / "step-2");
    EXPECT_TRUE(there || !finished) << call;
    if (there) {
      EXPECT_EQ(value_in(attempt / "step-2"), 2) << call;
    }
    auto next = store(attempt);
    const SavedCheckpoint saved = save(next, 2, 3);
    EXPECT_EQ(value_in(saved.path, saved.manifest_sha256), 3) << call;
    EXPECT_FALSE(fs::exists(attempt / "step-2.tmp")) << call;
  }
  EXPECT_GT(call, 20) << "calls of a checkpoint: four files, two directories, a rename";
  support::figure("P14", "calls_of_a_writer_died_in", call - 2);
}

// A disk that says it has written and keeps other bytes: of the n-th write one bit.
class FlippingFiles final : public base::FileLayer {
 public:
  explicit FlippingFiles(int at) : at_(at) {}
  [[nodiscard]] bool flipped() const { return writes_ >= at_; }

  ssize_t write(int fd, const void* data, size_t size) override {
    if (size == 0 || ++writes_ != at_) return FileLayer::write(fd, data, size);
    std::string other(static_cast<const char*>(data), size);
    other[size / 2] = static_cast<char>(other[size / 2] ^ 1);
    return FileLayer::write(fd, other.data(), size);
  }

 private:
  const int at_;
  int writes_ = 0;
};

// jobs.md §7: read back and compared before anybody hears of it. Wherever the bit lies, also in the
// manifest, the checkpoint is gone again, the one before stands, and another try may go better.
TEST_F(CheckpointStoreTest, OtherBytesOnTheDiskAreFoundBeforeTheCheckpointCounts) {
  int at = 1;
  for (bool clean = false; !clean; ++at) {
    ASSERT_LT(at, 100);
    const fs::path attempt = directory_ / ("attempt-" + std::to_string(at));
    fs::create_directory(attempt);
    auto first = store(attempt);
    save(first, 1, 1);
    FlippingFiles files(at);
    auto store = this->store(attempt, files);
    Exit exit = Exit::kSuccess;
    try {
      save(store, 2, 2);
    } catch (const Failure& failure) {
      exit = failure.exit();
      EXPECT_THAT(failure.what(), ::testing::HasSubstr("reads back other bytes")) << at;
    }
    clean = !files.flipped();
    EXPECT_EQ(exit, clean ? Exit::kSuccess : Exit::kRetryable) << at;
    EXPECT_EQ(fs::exists(attempt / "step-2"), clean) << at;
    EXPECT_EQ(store.last() != nullptr, clean) << at;
    EXPECT_EQ(value_in(attempt / "step-1"), 1) << at;
    const SavedCheckpoint saved = save(first, 2, 3);
    EXPECT_EQ(value_in(saved.path, saved.manifest_sha256), 3) << at;
  }
  EXPECT_GT(at, 4) << "writes of a checkpoint: four files at least";
  support::figure("P14", "flipped_bits_found", at - 2);
}

}  // namespace
}  // namespace dex::train
