#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "worker/model/config.h"
#include "worker/train/examples.h"
#include "worker/train/report.h"
#include "worker/train/row_report.h"
#include "worker/train/spec.h"

namespace dex::train {

// The rows of a job as the model will see them.
struct Dataset {
  std::vector<Example> train,
      validation;  // each at most max_seq_length tokens, with something to train on
  std::vector<HeldOutRow> validation_rows;  // of each of validation: where it comes from
  std::vector<Example> calibration;         // of the spec's calibration file; empty without one
  // Tags or languages of the training file's rows, held-out and unused ones included, where the job
  // draws by them.
  std::set<std::string> groups;
  int32_t max_seq_length = 0;
  std::string training_sha256, validation_sha256;      // of the files; the second empty without one
  std::string tokenizer_sha256, chat_template_sha256;  // empty where the model's folder has none

  // Rows on which heads are measured.
  [[nodiscard]] const std::vector<Example>& measured() const {
    return calibration.empty() ? train : calibration;
  }
};

// Reads, encodes, checks and splits the data files (api.md §5): both layers, since a trainer may
// run alone. Needs the model's tokenizer only for rows of text. Emits validation_complete with
// counts, and a warning for each kind of row that is left out or cut, for held-out rows that are
// trained on (valid_overlaps_train), and for rows that don't suit the spec's preset. Rows of a
// calibration file are cut to the calibration's seq_length. Throws Failure
// invalid_training_file naming file, line and code when the file can't be used or more rows than
// skip_budget_ratio are left out, and invalid_hyperparameter for a sequence length beyond the
// model's context.
Dataset load_dataset(const JobSpec& spec, const model::Config& config, Session& session,
                     const std::function<void(Phase)>& enter_phase);

// The probe set of the base guard (finetuning.proto, BaseGuardOptions): rows of the spec's probe
// file, else the general text, each cut to 256 tokens and every token of it a target, up to 4,096
// tokens together. Rows too short to predict anything are left out. Throws Failure
// invalid_training_file for a file that can't be used, and invalid_hyperparameter for a model
// without a tokenizer and no probe file.
std::vector<Example> load_probe(const JobSpec& spec, const model::Config& config);

}  // namespace dex::train
