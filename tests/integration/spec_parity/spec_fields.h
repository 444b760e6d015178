#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"

namespace dex {

// A field of FineTuningJobSpec that holds one number, enum or bool, found through the descriptor: a
// field that joins the contract is in every test that uses this at once.
struct SpecField {
  std::string path;  // "dex.lambda.start"
  const google::protobuf::FieldDescriptor* field;

  [[nodiscard]] bool is_number() const;
  // Values worth trying: the edges of usual limits and both sides of them, NaN, every number of an
  // enum and some that it does not have.
  [[nodiscard]] std::vector<double> candidates() const;
  // Sets the field, and the blocks that lead to it.
  void set(dex::v1::FineTuningJobSpec& spec, double value) const;
};

std::vector<SpecField> spec_fields();

}  // namespace dex
