#include "worker/train/report.h"

namespace dex::train {

const char* name(Phase phase) {
  switch (phase) {
    case Phase::kLoadingModel:
      return "LOADING_MODEL";
    case Phase::kLoadingDataset:
      return "LOADING_DATASET";
    case Phase::kValidating:
      return "VALIDATING";
    case Phase::kSelectingHeads:
      return "SELECTING_HEADS";
    case Phase::kProbing:
      return "PROBING";
    case Phase::kTraining:
      return "TRAINING";
    case Phase::kEvaluating:
      return "EVALUATING";
    case Phase::kSavingCheckpoint:
      return "SAVING_CHECKPOINT";
    case Phase::kExporting:
      return "EXPORTING";
    case Phase::kVerifying:
      return "VERIFYING";
    case Phase::kFinalizing:
      return "FINALIZING";
  }
  return "";
}

}  // namespace dex::train
