#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/clock.h"
#include "services/base/frame_channel.h"
#include "services/base/signals.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"
#include "worker/serve/evaluation_frames.h"

namespace dex::serve {

namespace pb = dex::v1;
using internal::v1::EvaluatorStart;
using internal::v1::TrainerCommand;
using internal::v1::TrainerReport;

inline constexpr int64_t kPatience_ms = 120'000;

// What an attempt said, until its last frame.
struct Said {
  std::vector<TrainerReport::CheckpointDone> steps;
  std::vector<pb::FineTuningEvent> events;
  double last_ratio = 0;
  TrainerReport::TrainerResult result;
  int exit = -1;
};

// An evaluation as a job: frames as the agent speaks them over a real socket pair, a real (tiny,
// random) model.
class EvaluationFramesTest : public ::testing::Test {
 protected:
  EvaluationFramesTest() {
    support::write_tiny_model(dir / "models");
    std::ofstream text(dir / "wiki");
    for (int i = 0; i < 60; ++i)
      text << "The cat number " << i << " sat on the mat and saw " << i * 7 << " birds .\n";
    std::ofstream(dir / "choices") << "What is two?,1,2,3,4,B\nWhat is three?,1,2,3,4,C\n";
    std::ofstream(dir / "broken") << "What is two?,1,2,3,4,B\nWhat is three?,1,2,3,4,X\n";
  }

  // Perplexity, then multiple choice on `choices`; the base twice.
  EvaluatorStart start(const std::string& attempt, const std::string& choices = "choices") {
    EvaluatorStart start;
    start.set_job_id("eval-1");
    start.set_model_dir((dir / "models" / support::kTinyModel).string());
    start.set_attempt_dir((dir / attempt).string());
    start.set_threads(1);
    std::filesystem::create_directories(dir / attempt);
    for (const char* label : {"base", "again"}) {
      auto& subject = *start.mutable_spec()->add_subjects();
      subject.set_model(support::kTinyModel);
      subject.set_label(label);
    }
    auto& perplexity = *start.mutable_spec()->add_tasks()->mutable_perplexity();
    perplexity.set_file("file-1");
    perplexity.set_format(pb::TEXT_FORMAT_RAW);
    perplexity.set_context_length(128);
    start.mutable_spec()->add_tasks()->mutable_multiple_choice()->set_file("file-2");
    const std::pair<std::string, std::string> files[] = {{"file-1", "wiki"}, {"file-2", choices}};
    for (const auto& [id, name] : files) {
      auto& file = *start.add_files();
      file.set_file(id);
      file.set_path((dir / name).string());
      file.set_filename(name + ".published");
    }
    return start;
  }

  // Plays the agent until the last frame. `on_progress` may send something.
  Said run(const EvaluatorStart& start,
           const std::function<void(base::FrameChannel&)>& on_progress = {}) {
    auto pair = base::FrameChannel::pair();
    EXPECT_TRUE(pair.ok());
    auto& agent = *pair->first;
    base::FrameChannel engine(std::move(pair->second));
    Said said;
    std::jthread program([&] { said.exit = run_evaluation_frames(engine, signals, clock); });
    TrainerCommand command;
    *command.mutable_evaluate() = start;
    EXPECT_TRUE(agent.write(command.SerializeAsString(), kPatience_ms).ok());
    while (true) {
      const auto frame = agent.read(kPatience_ms);
      TrainerReport report;
      if (!frame.ok() || !report.ParseFromString(*frame)) {
        ADD_FAILURE() << frame.status().to_string();
        break;
      }
      if (report.has_progress()) {
        said.last_ratio = report.progress().progress().progress_percentage() / 100;
        if (on_progress && report.progress().phase() == pb::JOB_PHASE_LOADING_MODEL)
          on_progress(agent);
      }
      if (report.has_checkpoint()) said.steps.push_back(report.checkpoint());
      if (report.has_event()) said.events.push_back(report.event());
      if (!report.has_result()) continue;
      said.result = report.result();
      break;
    }
    program.join();
    return said;
  }

  support::TemporaryDirectory dir;
  base::StopSignals signals;
  base::SystemClock clock;
};

}  // namespace dex::serve
