#include "worker/agent/attempt_log.h"

#include <gtest/gtest.h>

namespace dex::agent {
namespace {

dex::v1::FineTuningEvent event(const std::string& message) {
  dex::v1::FineTuningEvent event;
  event.set_message(message);
  return event;
}

dex::v1::FineTuningEvent metrics(uint32_t step) {
  dex::v1::FineTuningEvent event;
  event.mutable_metrics()->set_step(step);
  return event;
}

TEST(AttemptLogTest, AnUnansweredBeatIsRepeatedUnchanged) {
  AttemptLog log("ftjob-1", 7);
  log.add_event(event("a"));
  const auto first = log.beat();
  EXPECT_EQ(first.job_id(), "ftjob-1");
  EXPECT_EQ(first.epoch(), 7);
  log.add_event(event("b"));
  dex::v1::Progress progress;
  progress.set_step(3);
  log.set_progress(dex::v1::JOB_PHASE_TRAINING, progress);
  EXPECT_EQ(log.beat().SerializeAsString(), first.SerializeAsString());
  EXPECT_FALSE(log.wait_delivered(0));

  log.answered(first.beat_seq());
  const auto second = log.beat();
  EXPECT_GT(second.beat_seq(), first.beat_seq());
  ASSERT_EQ(second.events_size(), 1);
  EXPECT_EQ(second.events(0).message(), "b");
  EXPECT_EQ(second.progress().step(), 3u);
  log.answered(first.beat_seq());
  EXPECT_FALSE(log.wait_delivered(0)) << "an answer to another beat counts nothing";
  log.answered(second.beat_seq());
  EXPECT_TRUE(log.wait_delivered(0));
}

iv1::CheckpointRef checkpoint(const std::string& uri) {
  iv1::CheckpointRef checkpoint;
  checkpoint.set_uri(uri);
  return checkpoint;
}

// The scheduler may have stored a beat whose answer was lost: both checkpoints can be what the job
// points to.
TEST(AttemptLogTest, KnowsWhichCheckpointsTheSchedulerHasOrMayHave) {
  using Pointers = AttemptLog::Pointers;
  AttemptLog log("j", 1);
  EXPECT_EQ(log.pointers(), Pointers{});
  log.set_checkpoint(checkpoint("step-1"));
  EXPECT_EQ(log.pointers(), Pointers{}) << "nobody has heard of it";
  const auto first = log.beat();
  EXPECT_EQ(log.pointers(), (Pointers{"", "step-1"}));
  log.answered(first.beat_seq());
  EXPECT_EQ(log.pointers(), (Pointers{"step-1", ""}));

  log.set_checkpoint(checkpoint("step-2"));
  const auto second = log.beat();
  log.set_checkpoint(checkpoint("step-3"));
  EXPECT_EQ(log.beat().checkpoint().uri(), "step-2") << "the same beat again";
  EXPECT_EQ(log.pointers(), (Pointers{"step-1", "step-2"}));
  log.answered(second.beat_seq());
  EXPECT_EQ(log.pointers(), (Pointers{"step-2", ""}));
}

TEST(AttemptLogTest, AGivenUpCheckpointIsOfferedNoMore) {
  AttemptLog log("j", 1);
  log.set_checkpoint(checkpoint("step-1"));
  log.clear_checkpoint();
  EXPECT_FALSE(log.checkpoint().has_value());
  EXPECT_FALSE(log.beat().has_checkpoint());
}

TEST(AttemptLogTest, CutsEventsByNumberAndBytesAndKeepsTheirOrder) {
  AttemptLog log("j", 1, {.events_a_beat = 10, .event_bytes_a_beat = 1000, .most_waiting = 100});
  for (int i = 0; i < 25; ++i) log.add_event(event(std::to_string(i)));
  for (int i = 25; i < 30; ++i) log.add_event(event(std::to_string(i) + std::string(400, 'x')));
  int next = 0;
  for (int beats = 0; !log.wait_delivered(0); ++beats) {
    ASSERT_LT(beats, 10);
    const auto beat = log.beat();
    EXPECT_LE(beat.events_size(), 10);
    EXPECT_LE(beat.ByteSizeLong(), 1200u);
    for (const auto& e : beat.events()) EXPECT_EQ(std::stoi(e.message()), next++);
    log.answered(beat.beat_seq());
  }
  EXPECT_EQ(next, 30);
}

TEST(AttemptLogTest, OneEventTooLargeForABeatKeepsItsWordsOnly) {
  AttemptLog log("j", 1, {.events_a_beat = 10, .event_bytes_a_beat = 1000, .most_waiting = 100});
  auto large = event("heads");
  for (int i = 0; i < 1000; ++i) {
    large.mutable_head_selection_complete()->add_layers()->add_selected(1);
  }
  log.add_event(large);
  const auto beat = log.beat();
  ASSERT_EQ(beat.events_size(), 1);
  EXPECT_EQ(beat.events(0).message(), "heads");
  EXPECT_FALSE(beat.events(0).has_head_selection_complete());
}

// A string with half a character makes the whole beat unreadable, and the attempt loses its lease.
TEST(AttemptLogTest, WordsAreCutBetweenCharacters) {
  AttemptLog log("j", 1, {.events_a_beat = 10, .event_bytes_a_beat = 1000, .most_waiting = 100});
  std::string words = "x";
  while (words.size() < 2000) words += "é";
  log.add_event(event(words));
  const std::string cut = log.beat().events(0).message();
  EXPECT_EQ(cut.size(), 1023u) << "two bytes a character behind the first";
  EXPECT_EQ(cut, words.substr(0, 1023));
  iv1::AttemptBeat read;
  EXPECT_TRUE(read.ParseFromString(log.beat().SerializeAsString()));
}

TEST(AttemptLogTest, AnOutageDropsOldMetricsFirst) {
  AttemptLog log("j", 1, {.events_a_beat = 100, .event_bytes_a_beat = 10'000, .most_waiting = 10});
  log.add_event(event("kept"));
  for (uint32_t step = 0; step < 50; ++step) log.add_event(metrics(step));
  const auto beat = log.beat();
  ASSERT_EQ(beat.events_size(), 10);
  EXPECT_EQ(beat.events(0).message(), "kept");
  EXPECT_EQ(beat.events(9).metrics().step(), 49u) << "the newest stays";
}

}  // namespace
}  // namespace dex::agent
