#pragma once

#include <string>
#include <vector>

#include "dex/v1/evaluation.pb.h"
#include "dex/v1/finetuning.pb.h"

// What workers can do that those of earlier versions could not: they name it when they register,
// and a job that needs it waits for one that does, in place of failing on one that doesn't.
namespace dex::proto {

inline constexpr const char* kShippedText = "shipped_text";  // needles without a file

// All that workers of this version can do.
const std::vector<std::string>& worker_features();

// Which of these the tasks of a job need; empty: none.
std::string needed_feature(const dex::v1::EvaluationSpec& spec);
std::string needed_feature(const dex::v1::FineTuningJobSpec& spec);  // of its gates

// What a job asks of a worker, and a worker offers for each of its models: the model's name, and
// behind a '+', which no name of a model has, the feature. Only the name where there is none.
std::string model_and_feature(const std::string& model, const std::string& feature);
// Whether a word that a worker offers is a model by itself.
bool is_plain_model(const std::string& word);

}  // namespace dex::proto
