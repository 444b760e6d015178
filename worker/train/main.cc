// dex-trainer: one attempt of one fine-tuning job, under an agent or alone.
#include <ATen/Parallel.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>

#include "services/base/clock.h"
#include "services/base/files.h"
#include "services/base/frame_channel.h"
#include "services/base/logging.h"
#include "services/base/signals.h"
#include "services/base/subprocess.h"
#include "services/base/version.h"
#include "worker/kernels/gemm.h"
#include "worker/train/checkpoint.h"
#include "worker/train/console_session.h"
#include "worker/train/frame_session.h"
#include "worker/train/job.h"
#include "worker/train/rank_session.h"
#include "worker/train/spec_io.h"

namespace {

using dex::train::Ending;
using dex::train::Exit;
using dex::train::JobSpec;
using dex::train::Session;

constexpr int64_t kStartTimeoutMs = 60'000;
constexpr int64_t kMaxSpecBytes = 4 << 20;

constexpr const char* kHelp = R"(Trains one adapter: one attempt of one fine-tuning job.

Alone:            dex-trainer --spec FILE --attempt-dir DIR
Under an agent:   dex-trainer --frames-fd N   (frames of proto/dex/internal/v1/frames.proto over socket N)

FILE is a TrainerStart message in protobuf JSON. A small one:
  {"modelDir": "models/smollm2-135m-instruct", "trainingPath": "rows.jsonl",
   "spec": {"seed": "1",
            "dex": {"form": "FORM_PAPER", "projection": "PROJECTION_SHARED",
                    "headSelection": {"criterion": "CRITERION_ENTROPY"},
                    "lambda": {"schedule": "SCHEDULE_PAPER_EQ4", "annealFraction": 0.5}},
            "hyperparameters": {"maxSteps": 20, "maxSeqLength": 512, "batchSize": 4, "learningRate": 1e-4}}}
Rows of token ids, {"input_ids": [...], "labels": [...]}, need no tokenizer; other formats use the model's.

DIR receives step-<n>/ (checkpoints), final/ (the adapter), metrics.jsonl, head_selection.json and its picture
head_selection.svg. To go on from a checkpoint, set "checkpointDir" to a step-<n>/ and give the same spec: the
result is the same to the bit. To go on from an adapter, set "startAdapterDir" to a final/ and give its method and shape;
λ is then SCHEDULE_LEARNED, or SCHEDULE_CONSTANT with the adapter's value.
"hyperparameters": {"firstLayer": 15} adapts the layers from 15 up only. With --prefix-cache, what the layers below compute
is kept in a folder, so that the second pass over the data, and the next job on the same rows and base, read it instead.
The folder may be shared by jobs and deleted at any time; results are the same with and without it, to the bit. Without it
those layers read row by row in every pass, whatever the packing, so that short rows take longer than packed ones would.
"hyperparameters": {"groupBy": "GROUP_BY_LANGUAGE"} (or GROUP_BY_TAG) draws rows so that each language has an equal share of the
tokens that a pass reads, "groupWeights": {"cy": 2} twice that share; a pass stays as long as it is. training_start says what each gets.
"headsOnly": true ends the job once its heads are chosen: final/ has head_selection.json and its picture, and nothing is trained.
"probeOnly": true does one update on the longest rows and ends: final/ has probe.json with the memory and the time that it took.
"hold": true checks everything, does that update, says what it took and ends with 16: nothing is trained and nothing kept.
"ranks": 2 shares each update among two processes with the same FILE but for "rank" (0, 1), at once, with "rendezvousFile" a path
where no file is: rank 0 is the job, the others compute for it. Losses are those of one process but for rounding.
SIGTERM and Ctrl-C write a checkpoint at the next step boundary and end with 16.

Exit codes: 0 done · 2 usage · 10 bad spec · 11 bad data · 12 loss not finite · 13 out of memory · 14 disk full ·
15 quota · 16 stopped on request · 17 base broken · 18 try again · 19 base guard or gate ·
20 checkpoint broken · 70 internal)";

// One library of products for the whole attempt: the checkpoint's where there is one to go on from,
// so that the bits are those of an attempt that was never stopped.
void choose_products(const JobSpec& spec) {
  using namespace dex::kernels;
  std::optional<std::string> before;
  if (spec.gemm == "auto" && !spec.checkpoint_dir.empty())
    before = dex::train::checkpoint_gemm(spec.checkpoint_dir);
  GemmChoice choice = choose_gemm(before.value_or(spec.gemm), on_intel());
  if (before) choice.why = "the checkpoint was made with it";
  choice = use_gemm(choice);
  std::clog << "dex-trainer: products by " << name(choice.gemm) << ": " << choice.why << std::endl;
}

// One thread pool for everything (performance.md §7): set before the first tensor.
void set_threads(int32_t threads) {
  if (threads > 0) at::set_num_threads(threads);
  at::set_num_interop_threads(1);
}

Ending run(JobSpec spec, Session& session, const dex::base::Clock& clock) {
  Ending ending;
  try {
    if (spec.attempt_dir.empty())
      throw dex::train::bad_spec("attempt_dir", "must be set (or --attempt-dir)");
    const auto made = dex::base::make_directories(spec.attempt_dir);
    if (!made.ok())
      throw dex::train::Failure(Exit::kRetryable, "internal", made.message(), "attempt_dir");
    set_threads(spec.threads);
    choose_products(spec);
    dex::train::RankSession quiet(session);
    Session& heard = spec.ranks.follows() ? static_cast<Session&>(quiet) : session;
    auto published = dex::train::run_job(spec, heard, clock);
    if (!spec.ranks.follows()) ending.published = std::move(published);
  } catch (const std::exception& error) {
    ending = dex::train::ending_of(error);
  }
  return ending;
}

// What the session can still be told; if it is gone, the exit code says it.
int finish(Session& session, const Ending& ending) {
  try {
    session.end(ending);
  } catch (const std::exception& error) {
    std::cerr << "dex-trainer: " << error.what() << std::endl;
  }
  return static_cast<int>(ending.exit);
}

// Flags that win over what FILE says; empty and −1: not given.
struct Overrides {
  std::string attempt_dir, prefix_cache_dir, gemm;
  int64_t prefix_cache_bytes = -1;

  void apply(JobSpec& spec) const {
    if (!attempt_dir.empty()) spec.attempt_dir = attempt_dir;
    if (!prefix_cache_dir.empty()) spec.prefix_cache_dir = prefix_cache_dir;
    if (!gemm.empty()) spec.gemm = gemm;
    if (prefix_cache_bytes >= 0) spec.prefix_cache_bytes = prefix_cache_bytes;
  }
};

int run_alone(const std::string& file, const Overrides& overrides,
              const dex::base::StopSignals& signals) {
  const dex::base::SystemClock clock;
  dex::train::ConsoleSession session(std::cout, signals, clock);
  JobSpec spec;
  try {
    const auto text = dex::base::read_file(file, kMaxSpecBytes);
    if (!text.ok()) throw dex::train::bad_spec("--spec", text.status().message());
    spec = dex::train::parse_spec_json(text.value(), file);
  } catch (const std::exception& error) {
    const Ending ending = dex::train::ending_of(error);
    std::cerr << "dex-trainer: " << ending.message << std::endl;
    return static_cast<int>(ending.exit);
  }
  overrides.apply(spec);
  const Ending ending = run(std::move(spec), session, clock);
  if (ending.exit != Exit::kSuccess) std::cerr << "dex-trainer: " << ending.message << std::endl;
  return finish(session, ending);
}

int run_framed(int fd, const Overrides& overrides, const dex::base::StopSignals& signals) {
  // An agent that is gone takes its trainer along; one that went before this line is seen as a
  // closed channel.
  if (!dex::base::die_with_parent()) return static_cast<int>(Exit::kStopped);
  const dex::base::SystemClock clock;
  dex::base::FrameChannel channel((dex::base::Fd(fd)));
  dex::train::FrameSession session(channel, signals, clock);
  JobSpec spec;
  try {
    spec = dex::train::parse_spec_bytes(session.await_start(kStartTimeoutMs));
    if (!overrides.gemm.empty()) spec.gemm = overrides.gemm;
    session.set_attempt(spec.attempt);
    session.ready("cpu");
  } catch (const std::exception& error) {
    return finish(session, dex::train::ending_of(error));
  }
  return finish(session, run(std::move(spec), session, clock));
}

}  // namespace

// OpenBLAS reads these when it is loaded: the pool is LibTorch's, and what the processor is it sees
// by itself (some machines name one that is not theirs). glibc is told to keep what a step frees:
// it would give the activations back after each micro-batch, to fault them in anew in the next.
void prepare_process() {
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  ::unsetenv("OPENBLAS_CORETYPE");
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, 64 << 20);
}

int main(int argc, char** argv) {
  prepare_process();
  const dex::base::StopSignals signals;
  CLI::App app(kHelp, "dex-trainer");
  std::string spec;
  Overrides overrides;
  int frames_fd = -1;
  app.add_option("--spec", spec, "TrainerStart in protobuf JSON");
  app.add_option("--attempt-dir", overrides.attempt_dir,
                 "where checkpoints and the adapter go; wins over the spec's");
  app.add_option("--prefix-cache", overrides.prefix_cache_dir,
                 "folder for what frozen layers compute (default: nothing is kept, and every "
                 "pass computes it again, row by row)");
  app.add_option("--prefix-cache-bytes", overrides.prefix_cache_bytes,
                 "bound of that folder (default: 4 GiB), 0: nothing is kept, as without it")
      ->check(CLI::NonNegativeNumber);
  app.add_option(
         "--gemm", overrides.gemm,
         "library of matrix products: auto (default: MKL on Intel's processors, OpenBLAS on "
         "others; a checkpoint's own), libtorch, openblas")
      ->check(CLI::IsMember({"auto", "libtorch", "openblas"}));
  app.add_option("--frames-fd", frames_fd, "inherited socket to the agent");
  app.set_version_flag("--version", std::string(dex::base::version()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(Exit::kUsage);
  }
  if (spec.empty() == (frames_fd < 0)) {
    std::cerr << "dex-trainer: give either --spec FILE or --frames-fd N; see --help" << std::endl;
    return static_cast<int>(Exit::kUsage);
  }
  const auto logging = dex::base::init_logging({.component = "trainer"});
  if (!logging.ok()) std::cerr << "dex-trainer: " << logging.message() << std::endl;
  return frames_fd >= 0 ? run_framed(frames_fd, overrides, signals)
                        : run_alone(spec, overrides, signals);
}
