#include "worker/train/out_of_memory.h"

namespace dex::train {
namespace {

std::string place_text(const OutOfMemory& out) {
  const std::string after = " after " + std::to_string(out.step) + " updates";
  switch (out.where) {
    case MemoryPlace::kBefore:
      return "while model and rows were loaded";
    case MemoryPlace::kForward:
      return "in the forward pass" + after;
    case MemoryPlace::kBackward:
      return "in the backward pass" + after;
    case MemoryPlace::kOptimizer:
      return "in the optimizer" + after;
    case MemoryPlace::kEvaluation:
      return "while the model was evaluated" + after;
  }
  return "";
}

}  // namespace

const char* name(MemoryPlace place) {
  switch (place) {
    case MemoryPlace::kBefore:
      return "UNSPECIFIED";
    case MemoryPlace::kForward:
      return "FORWARD";
    case MemoryPlace::kBackward:
      return "BACKWARD";
    case MemoryPlace::kOptimizer:
      return "OPTIMIZER";
    case MemoryPlace::kEvaluation:
      return "EVALUATION";
  }
  return "UNSPECIFIED";
}

std::string sentence(const OutOfMemory& out) {
  std::string text = "out of memory " + place_text(out) + ": peak " +
                     std::to_string(out.peak_memory_bytes >> 20) + " MiB";
  if (out.longest_row_tokens > 0)
    text += ", longest row " + std::to_string(out.longest_row_tokens) + " tokens";
  if (out.micro_batch_size > 0) {
    text += ", micro_batch_size " + std::to_string(out.micro_batch_size) + ", max_seq_length " +
            std::to_string(out.max_seq_length);
  }
  return text;
}

}  // namespace dex::train
