// Jobs whose lowest layers are frozen: with the cache off, cold and warm they are the same job, to
// the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train/methods.h"
#include "worker/train/resolve.h"

namespace dex::train::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(FrozenLayersTest, AreKnownFromTheSpecAlone) {
  JobSpec spec;
  EXPECT_EQ(frozen_layers(spec), 0);
  spec.dex.first_layer = 2;
  EXPECT_EQ(frozen_layers(spec), 2);
  spec.heads.criterion = evaluate::Criterion::kExplicit;
  spec.heads.heads = {{}, {}, {}, {1, 3}, {0}};
  EXPECT_EQ(frozen_layers(spec), 2);  // K, V and O of layer 2 are trained
  spec.dex.train = model::Train::kDexOnly;
  EXPECT_EQ(frozen_layers(spec), 3);
  spec.dex.soft_floor = 0.1;  // of every head
  EXPECT_EQ(frozen_layers(spec), 2);
  spec.dex.soft_floor = 0;
  spec.start_adapter_dir = "/adapter";  // whose heads it has
  EXPECT_EQ(frozen_layers(spec), 2);
  spec.start_adapter_dir.clear();
  spec.heads.criterion = evaluate::Criterion::kThreshold;
  EXPECT_EQ(frozen_layers(spec), 2);
  spec.dex.train = model::Train::kFullDex;
  EXPECT_EQ(frozen_layers(spec), 0);
}

class PrefixCacheTest : public JobTest {
 protected:
  // 12 updates, two passes over the data and a little more; evaluated at every second one.
  JobSpec upper(const std::string& attempt, bool cached,
                model::Train train = model::Train::kKvoDex) const {
    JobSpec spec = this->spec(attempt);
    choose(train, spec);
    spec.dex.first_layer = 1;
    spec.hyperparameters.max_steps = 12;
    spec.evaluation.every_steps = 2;
    if (cached) spec.prefix_cache_dir = cache();
    return spec;
  }
  fs::path cache() const { return directory_ / "cache"; }
  int64_t cached_files() const {
    return std::distance(fs::directory_iterator(cache()), fs::directory_iterator());
  }

  static int64_t count(const RecordingSession& session, const std::string& key) {
    return std::stoll(session.data("prefix_cache").at(0).at(key).get<std::string>());
  }
  // Every number that the job says and every tensor that it leaves.
  void expect_same(const RecordingSession& a, const Published& pa, const RecordingSession& b,
                   const Published& pb) const {
    EXPECT_EQ(a.numbers("metrics", "trainLoss"), b.numbers("metrics", "trainLoss"));
    EXPECT_EQ(a.numbers("metrics", "gradNorm"), b.numbers("metrics", "gradNorm"));
    EXPECT_EQ(a.numbers("eval_complete", "validLoss"), b.numbers("eval_complete", "validLoss"));
    EXPECT_EQ(a.data("branch_verdict"), b.data("branch_verdict"));
    EXPECT_EQ(a.data("base_guard"), b.data("base_guard"));
    EXPECT_EQ(a.data("gate_result"), b.data("gate_result"));
    EXPECT_TRUE(bytes_of(fs::path(pa.path) / "adapter_model.safetensors") ==
                bytes_of(fs::path(pb.path) / "adapter_model.safetensors"));
  }
};

class PrefixCacheOfMethodTest : public PrefixCacheTest,
                                public ::testing::WithParamInterface<model::Train> {};

TEST_P(PrefixCacheOfMethodTest, OffColdAndWarmAreTheSameToTheBit) {
  RecordingSession off, cold, warm;
  const Published without = run(upper("off", false, GetParam()), off);
  EXPECT_THAT(off.data("prefix_cache"), ::testing::IsEmpty());
  const Published first = run(upper("cold", true, GetParam()), cold);
  expect_same(off, without, cold, first);
  EXPECT_EQ(count(cold, "misses"), cached_files());
  EXPECT_GT(count(cold, "hits"), count(cold, "misses"));  // by the second pass and evaluations
  EXPECT_EQ(cold.data("prefix_cache").at(0).at("layers"), 1);

  const Published second = run(upper("warm", true, GetParam()), warm);
  expect_same(off, without, warm, second);
  EXPECT_EQ(count(warm, "misses"), 0);
  EXPECT_EQ(count(warm, "hits"), count(cold, "hits") + count(cold, "misses"));
  EXPECT_EQ(count(warm, "writtenBytes"), 0);
}

INSTANTIATE_TEST_SUITE_P(Trains, PrefixCacheOfMethodTest,
                         ::testing::Values(model::Train::kKvoDex, model::Train::kDexOnly,
                                           model::Train::kLora, model::Train::kAdapter),
                         [](const auto& info) { return test_name(info.param); });

// Rows are found again whatever pack, order and job they come back in, by whatever method.
TEST_F(PrefixCacheTest, AnotherJobOnTheSameRowsFindsThem) {
  RecordingSession first, second;
  run(upper("first", true), first);
  JobSpec other = upper("second", true, model::Train::kLora);
  other.seed = 99;
  other.hyperparameters.packing = false;
  other.hyperparameters.learning_rate = 1e-2;
  run(other, second);
  EXPECT_GT(count(second, "hits"), 0);
  EXPECT_EQ(count(second, "misses"), 0);
}

// Hits would tell which rows others have trained on.
TEST_F(PrefixCacheTest, AJobOfAnotherOwnerDoesNot) {
  RecordingSession first, other, again;
  const auto owned = [&](const std::string& attempt, const std::string& owner) {
    JobSpec spec = upper(attempt, true);
    spec.prefix_cache_owner = owner;
    return spec;
  };
  run(owned("first", "acme"), first);
  run(owned("other", "globex"), other);
  EXPECT_EQ(count(other, "misses"), count(first, "misses"));
  EXPECT_EQ(count(other, "damaged"), 0);
  run(owned("again", "acme"), again);
  EXPECT_EQ(count(again, "misses"), 0);
}

TEST_F(PrefixCacheTest, AnotherBaseOrNumberOfThreadsDoesNot) {
  RecordingSession first, again, threads;
  run(upper("first", true), first);
  const int64_t rows = count(first, "misses");
  JobSpec other = upper("other", true);
  other.model_dir = other_base();
  run(other, again);
  EXPECT_EQ(count(again, "misses"), rows);
  EXPECT_EQ(count(again, "damaged"), 0);
  at::set_num_threads(2);
  run(upper("threads", true), threads);
  at::set_num_threads(1);
  EXPECT_EQ(count(threads, "misses"), rows);
}

TEST_F(PrefixCacheTest, GuardAndGatesMeasureTheSame) {
  const auto guarded = [&](const std::string& attempt, bool cached) {
    JobSpec spec = upper(attempt, cached);
    spec.probe_path = directory_ / "validation.jsonl";
    spec.base_guard.kl_max = 100;
    Gate gate;
    gate.name = "quality";
    gate.figure = Gate::Figure::kHeldOutLoss;
    gate.against_base = true;
    gate.on_fail = Gate::OnFail::kWarn;
    gate.condition = "as asked";
    spec.gates.push_back(gate);
    return spec;
  };
  RecordingSession off, warm;
  const Published without = run(guarded("off", false), off);
  const Published with = run(guarded("on", true), warm);
  expect_same(off, without, warm, with);
  ASSERT_FALSE(warm.data("base_guard").empty());
  EXPECT_EQ(warm.data("base_guard").at(0).at("kl"), 0);  // the start is the base, to the bit
  EXPECT_EQ(warm.data("gate_result").size(), 1u);
}

TEST_F(PrefixCacheTest, AResumedJobIsTheUndisturbedOne) {
  RecordingSession straight, broken_off, resumed;
  run(upper("straight", false), straight);
  bool told = false;
  broken_off.script = [&](const Progress& progress) -> Command {
    if (told || progress.step < 5) return {};
    told = true;
    return {Command::Kind::kStop, "", StopReason::kDrain};
  };
  EXPECT_THROW(run(upper("broken-off", true), broken_off), Stopped);
  JobSpec rest = upper("rest", true);
  rest.checkpoint_dir = broken_off.checkpoints.back().path;
  run(rest, resumed);
  EXPECT_GT(count(resumed, "hits"), 0);
  for (const char* file :
       {"final/adapter_model.safetensors", "step-12/optimizer.safetensors", "step-12/state.json"})
    EXPECT_TRUE(bytes_of(directory_ / "straight" / file) == bytes_of(directory_ / "rest" / file))
        << file;
}

// What is damaged, cut short, or gone between two updates is computed again.
TEST_F(PrefixCacheTest, DamageAndDeletionChangeNothing) {
  RecordingSession off, cold, damaged, deleted;
  const Published without = run(upper("off", false), off);
  run(upper("cold", true), cold);
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(cache())) {
    if (files++ % 2 == 0) {
      fs::resize_file(entry.path(), entry.file_size() - 3);
    } else {
      std::fstream out(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      out.seekp(-2, std::ios::end);
      out.put('\x7f').put('\x7f');  // the high bytes of a float
    }
  }
  const Published again = run(upper("damaged", true), damaged);
  expect_same(off, without, damaged, again);
  EXPECT_EQ(count(damaged, "damaged"), files);
  EXPECT_EQ(count(damaged, "misses"), files);

  bool removed = false;
  deleted.script = [&](const Progress& progress) -> Command {
    if (progress.step == 7 && !removed) {
      fs::remove_all(cache());
      removed = true;
    }
    return {};
  };
  const Published last = run(upper("deleted", true), deleted);
  EXPECT_TRUE(removed);
  expect_same(off, without, deleted, last);
  EXPECT_GT(count(deleted, "misses"), 0);
}

TEST_F(PrefixCacheTest, ABoundTooSmallForTheDataStillHelps) {
  RecordingSession off, bounded;
  const Published without = run(upper("off", false), off);
  JobSpec spec = upper("bounded", true);
  spec.prefix_cache_bytes = 40'000;  // about a third: 72 rows of some 22 tokens are 200 kB
  const Published with = run(spec, bounded);
  expect_same(off, without, bounded, with);
  EXPECT_GT(count(bounded, "hits"), 0);
  EXPECT_LE(count(bounded, "writtenBytes"), 40'000);
  const auto said = std::find_if(bounded.events.begin(), bounded.events.end(),
                                 [](const Event& event) { return event.type == "prefix_cache"; });
  ASSERT_NE(said, bounded.events.end());
  EXPECT_THAT(said->message, HasSubstr("it took no more"));
}

// dex_only with heads in the upper layer alone, and no first_layer.
TEST_F(PrefixCacheTest, AListOfHeadsMayLeaveLayersFrozenToo) {
  const auto listed = [&](const std::string& attempt, bool cached) {
    JobSpec spec = upper(attempt, cached, model::Train::kDexOnly);
    spec.dex.first_layer = 0;
    spec.heads.criterion = evaluate::Criterion::kExplicit;
    spec.heads.heads = {{}, {1, 3}};
    return spec;
  };
  RecordingSession off, cold;
  const Published without = run(listed("off", false), off);
  const Published with = run(listed("on", true), cold);
  expect_same(off, without, cold, with);
  EXPECT_GT(count(cold, "hits"), 0);
}

TEST_F(PrefixCacheTest, NothingIsKeptWhereEveryLayerIsAdapted) {
  RecordingSession whole, switched_off;
  JobSpec spec = upper("whole", true);
  spec.dex.first_layer = 0;
  run(spec, whole);
  JobSpec none = upper("none", true);
  none.prefix_cache_bytes = 0;
  run(none, switched_off);
  EXPECT_FALSE(fs::exists(cache()));
  EXPECT_THAT(whole.data("prefix_cache"), ::testing::IsEmpty());
  EXPECT_THAT(switched_off.data("prefix_cache"), ::testing::IsEmpty());
}

}  // namespace
}  // namespace dex::train::testing
