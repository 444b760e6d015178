// What people type behind --promote-if and --task.
#include <cmath>

#include "client/cli/promote_if.h"
#include "proto/gates.h"
#include "tests/fuzz/target.h"

namespace dex::fuzz {

Corpus corpus() {
  return {
      {"held_out.loss<=0", "base_guard.kl<=0.1", "branch_effect.value>=0.02",
       "perplexity(wiki.test.raw).loss<=0",
       "multi_needle(book.txt, lengths=1024,2048).accuracy[length=2048]>=-0.05",
       "perplexity(wiki.test.raw).loss<=0 against kvo_only ft:a:b:c",
       "multi_needle(lengths=1024).all>=0 against ft:a", "multiple_choice(mmlu.csv, samples=500)",
       "answers(nq.jsonl)", "multi_needle()", "perplexity(caf\xE9.txt).loss<=0",
       "icl(a,b=c.jsonl, shots=0,4).accuracy[shots=4,order=x]>=0"},
      {"<=",         ">=",        "(",     ")",
       "[",          "]",         ",",     "=",
       ".",          " against ", "base",  "absolute",
       "adapter",    "kvo_only",  "ft:",   "multi_needle",
       "in_context", "lengths=",  "file=", "perplexity",
       "nan",        "inf",       "0x1p3", "1e999",
       "\xFF"}};
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const std::string text(view(data, size));
  const auto gate = dex::cli::parse_gate(text);
  check(gate.status());
  if (gate.ok()) {
    taken();
    require(std::isfinite(gate->threshold()), "a limit is a number");
    dex::v1::FineTuningJobSpec spec;
    *spec.add_gates() = *gate;
    dex::proto::fill_gates(spec);
    (void)dex::proto::gate_condition(spec.gates(0));
    (void)dex::proto::bad_gates(spec);
    (void)dex::proto::gate_conflicts(spec);
  }
  const auto task = dex::cli::parse_task(text);
  check(task.status());
  if (task.ok()) taken();
  return 0;
}
