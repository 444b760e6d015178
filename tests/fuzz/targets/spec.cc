// A job's spec as the trainer gets it, in protobuf JSON and in its wire form.
#include <google/protobuf/util/json_util.h>

#include "dex/internal/v1/frames.pb.h"
#include "tests/fuzz/target.h"
#include "worker/train/spec_io.h"

namespace dex::fuzz {

namespace {

std::string start(const std::string& spec) {
  return R"({"modelDir": "/m", "trainingPath": "/t.jsonl", "attemptDir": "/a", "spec": )" + spec +
         "}";
}

}  // namespace

Corpus corpus() {
  Corpus made;
  made.seeds = {
      start("{}"),
      start(R"({"seed": "9",
        "dex": {"preset": "multilingual@1", "form": "FORM_HEAD_MEAN", "projection": "PROJECTION_BOTTLENECK",
                "bottleneck": {"widthRatio": 1.5, "scope": "SCOPE_PER_HEAD"}, "sign": "SIGN_PLUS",
                "headSelection": {"criterion": "CRITERION_THRESHOLD", "tau": 1.0, "eta": 0.03,
                                  "reselectEverySteps": 500},
                "lambda": {"schedule": "SCHEDULE_COSINE", "start": 0.05, "end": 0.3, "annealSteps": "3000"}},
        "hyperparameters": {"learningRate": 5e-5, "branchLearningRate": 1e-4, "maxSteps": 10,
                            "truncation": "TRUNCATION_CHUNK"},
        "checkpoints": {"everySeconds": 60}, "watchdog": {"maxRollbacks": 0}})"),
      start(
          R"({"lora": {"r": 8, "alpha": 16}, "hyperparameters": {"batchSize": 4, "microBatchSize": 2}})"),
      start(R"({"adapter": {}, "earlyStopping": {"enabled": true, "patience": 2}})"),
      start(
          R"({"full": {}, "gates": [{"task": "held_out", "metric": "loss", "op": "OP_LE", "threshold": 0}]})"),
      start(
          R"({"dex": {"headSelection": {"criterion": "CRITERION_EXPLICIT", "heads": [{"layer": 2, "heads": [0, 1]}]}}})")};
  const size_t texts = made.seeds.size();
  for (size_t i = 0; i < texts; ++i) {
    internal::v1::TrainerStart message;
    if (google::protobuf::util::JsonStringToMessage(made.seeds[i], &message).ok())
      made.seeds.push_back(message.SerializeAsString());
  }
  made.words = {"\"dex\":",          "\"lora\":",       "\"diff\":{}",
                "\"full\":{}",       "\"seed\":",       "\"nEpochs\":",
                "\"maxSteps\":",     "\"batchSize\":",  "\"maxSeqLength\":",
                "\"learningRate\":", "\"NaN\"",         "\"Infinity\"",
                "\"gates\":[{}]",    "\"threads\":",    "\"attempt\":",
                "\"heads\":",        "\"firstLayer\":", "\"groupWeights\":{\"a\":1}",
                "\"evaluation\":{}"};
  return made;
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const std::string text(view(data, size));
  parse([&] {
    const auto spec = dex::train::parse_spec_json(text, "spec.json");
    require(spec.spec_sha256.size() == 64, "a hash that ties checkpoints to their job");
  });
  parse([&] { (void)dex::train::parse_spec_bytes(text); });
  return 0;
}
