#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "worker/serve/request.h"

// dex-engine without a server: one model, at most one adapter, one request. All of them load,
// compute in the calling thread and return; they throw std::runtime_error with one sentence for
// whatever is wrong.
namespace dex::serve {

struct LocalModel {
  std::filesystem::path model;
  std::filesystem::path adapter;  // empty: the base
  std::string dtype;              // bf16, f32, int8, int4; empty: as stored
  int threads = 0;                // 0: all cores
  // Of every request, Request::dex_lambda_scale; not of fold.
  std::optional<double> dex_lambda_scale;
};

struct GenerateCommand {
  std::string prompt;
  std::string tokens;  // "1,2,3" instead of a prompt
  bool chat = false;   // the prompt is a user's message, through the chat template
  bool stats = false;  // a line of figures to `log` at the end
  Request request;     // all but the prompt
};
// Writes the text as it is made, or ids where the model has no tokenizer.
void generate(const LocalModel& where, GenerateCommand command, const base::Clock& clock,
              std::ostream& out, std::ostream& log);

// Writes a JSON array: the log-probability of each token from the second on, given those before it.
void score(const LocalModel& where, const std::string& tokens, const base::Clock& clock,
           std::ostream& out);

struct MeasureCommand {
  int32_t batch = 1;
  int32_t prompt_tokens = 128;
  int32_t new_tokens = 64;  // the first of them by the prefill
  int32_t repeats = 3;      // after one to warm up
  std::string tokens;       // a row of ids for every sequence; empty: the formula of tests/perf
  // A folder with a folder for each adapter, instead of --adapter: by name, sequence r has the
  // (r mod N)-th. Empty: all have the same.
  std::filesystem::path adapters;
  int32_t distinct = 0;       // N; 0: all that are there
  bool branch_apart = false;  // branches that fold are computed beside W_O all the same
};
// Greedy decoding of a fixed length, timed as shared peers are; writes one line of JSON. With
// `adapters` it names their number, and their bytes beside the base.
void measure(const LocalModel& where, const MeasureCommand& command, const base::Clock& clock,
             std::ostream& out);

// "1,2,3" → ids. Throws "--tokens: …".
std::vector<int32_t> parse_tokens(const std::string& text);

}  // namespace dex::serve
