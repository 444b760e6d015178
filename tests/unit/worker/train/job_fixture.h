#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "services/base/clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/train/recording_session.h"
#include "tests/unit/worker/train/tiny_model.h"
#include "worker/train/job.h"

namespace dex::train::testing {

inline std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("no file " + file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// A tiny model and data in a directory of their own, and jobs on them within this process.
class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    at::set_num_threads(1);
    write_tiny_model(directory_ / "model");
    write_rows(directory_ / "train.jsonl", tiny_rows(60, 40));
    write_rows(directory_ / "validation.jsonl", tiny_rows(12, 40, 78));
  }

  JobSpec spec(const std::string& attempt = "attempt-1") const {
    JobSpec spec;
    spec.job_id = "ftjob-test";
    spec.model_name = "tiny";
    spec.model_dir = directory_ / "model";
    spec.training_path = directory_ / "train.jsonl";
    spec.validation_path = directory_ / "validation.jsonl";
    spec.attempt_dir = directory_ / attempt;
    spec.seed = 3;
    spec.spec_sha256 = std::string(64, 'a');
    spec.calibration.skip_rows = 8;
    spec.hyperparameters.max_seq_length = 64;
    spec.hyperparameters.batch_size = 4;
    spec.hyperparameters.micro_batch_size = 2;
    spec.hyperparameters.max_steps = 6;
    spec.hyperparameters.learning_rate = 3e-3;
    spec.hyperparameters.branch_learning_rate = 3e-3;
    spec.hyperparameters.lambda_learning_rate = 1e-2;
    return spec;
  }

  // The model's folder again with other weights: another base.
  std::filesystem::path other_base() const {
    const std::filesystem::path folder = directory_ / "model2";
    std::filesystem::copy(directory_ / "model", folder);
    auto weights = tiny_weights(tiny_config());
    weights.norm.add_(0.01);
    std::filesystem::remove(folder / "model.safetensors");
    model::write_safetensors(folder / "model.safetensors", model::named_weights(weights));
    return folder;
  }

  Published run(const JobSpec& spec, Session& session,
                base::FileLayer& files = base::system_files()) const {
    std::filesystem::create_directories(spec.attempt_dir);
    return run_job(spec, session, clock_, files);
  }

  // The failure with which the job ends.
  Failure failure_of(const JobSpec& spec, Session& session,
                     base::FileLayer& files = base::system_files()) const {
    try {
      run(spec, session, files);
    } catch (const Failure& failure) {
      return failure;
    }
    ADD_FAILURE() << "the job succeeded";
    return {Exit::kSuccess, "", ""};
  }
  Failure failure_of(const JobSpec& spec) const {
    RecordingSession session;
    return failure_of(spec, session);
  }

  support::TemporaryDirectory directory_;
  base::SystemClock clock_;
};

}  // namespace dex::train::testing
