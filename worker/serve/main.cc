// dex-engine: serves one base model with its adapters, under an agent or from the command line.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <string>

#include "services/base/clock.h"
#include "services/base/frame_channel.h"
#include "services/base/logging.h"
#include "services/base/random.h"
#include "services/base/signals.h"
#include "services/base/subprocess.h"
#include "services/base/version.h"
#include "worker/evaluate/heads_command.h"
#include "worker/model/unilm.h"
#include "worker/serve/evaluate_door.h"
#include "worker/serve/evaluation_frames.h"
#include "worker/serve/fold_command.h"
#include "worker/serve/frame_server.h"
#include "worker/serve/local_commands.h"
#include "worker/serve/serving_model.h"

namespace {

namespace serve = dex::serve;

constexpr const char* kHelp = R"(Runs a base model, with or without a DEX adapter.

Generate text:
  dex-engine generate --model DIR --prompt "def fibonacci(n):" --max-tokens 64 --temperature 0
  dex-engine generate --model DIR --adapter DIR --chat --prompt "Write a sort in Python." --seed 7
Log-probability of each token from the second on, as a JSON array:
  dex-engine score --model DIR --dtype f32 --tokens 504,4041,282,1330
The same of an adapter at half the strength of its branch:
  dex-engine score --model DIR --adapter DIR --lambda-scale 0.5 --dtype f32 --tokens 504,4041,282,1330
The adapter inside the model, as a plain Hugging Face folder that any program loads:
  dex-engine fold --model DIR --adapter DIR --out DIR
A model with the differential attention of microsoft/unilm, as the DiffLlama that it is:
  dex-engine convert --model DIR --out DIR
Entropy and importance of each attention head, by layer, on [[504,4041,…],[…]] in a file:
  dex-engine heads --model DIR --dtype f32 --tokens-file ids.json --i-min 32
Measure it on your data, adapters against the base:
  dex-engine evaluate perplexity --model DIR --adapter DIR --file text.txt
What eight-bit weights cost, on your data:
  dex-engine evaluate perplexity --model DIR --adapter DIR --file text.txt --against-int8
How fast it is here:
  dex-engine measure --model DIR --prompt-tokens 128 --new-tokens 64 --batch 1
  dex-engine measure --model DIR --adapters DIR --distinct 8 --batch 8
Under an agent (frames of proto/dex/internal/v1/frames.proto over an inherited socket):
  dex-engine serve --frames-fd 3
  dex-engine evaluation --frames-fd 3

--model is a Hugging Face folder (config.json, *.safetensors, tokenizer.json), --adapter one that DEX trained for it
(adapter_config.json, adapter_model.safetensors, checksums.json) or a LoRA folder that PEFT saved for it.)";

constexpr const char* kConvert =
    R"(Writes a model whose attention is microsoft/unilm's Diff-Transformer (V1) as the DiffLlama that it is, which any
program loads, and prints one line of JSON.

  dex-engine convert --model DIR --out DIR

--model has the config.json of that DiffLlama, with unilm's sub-heads as its heads (num_attention_heads twice unilm's
num_heads, num_key_value_heads likewise), and *.safetensors with transformers' names but unilm's own in self_attn:
q_proj, k_proj, v_proj, out_proj, lambda_q1, lambda_k1, lambda_q2, lambda_k2, subln.weight.)";

constexpr int kUsage = 2;

void add_model(CLI::App& command, serve::LocalModel& where) {
  command.add_option("--model", where.model, "Hugging Face folder of the base model")
      ->required()
      ->type_name("DIR");
  command.add_option("--adapter", where.adapter, "folder of an adapter made for it")
      ->type_name("DIR");
  command
      .add_option("--dtype", where.dtype,
                  "bf16: weights and KV cache in bf16; f32: nothing is rounded; int8: weights in "
                  "eight bits, a scale an output channel, int4: in four, a scale and a minimum for "
                  "32 of them, KV cache as stored (default: as stored)")
      ->check(CLI::IsMember({"bf16", "f32", "int8", "int4"}));
  command.add_option("--threads", where.threads, "compute threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
}

void add_lambda_scale(CLI::App& command, serve::LocalModel& where) {
  command.add_option(
      "--lambda-scale", where.dex_lambda_scale,
      "0–1, times every λ of the adapter's branch; 0: without the branch; below 1 it "
      "is computed beside W_O (default: 1, folded into it)");
}

CLI::App* add_generate(CLI::App& app, serve::LocalModel& where, serve::GenerateCommand& generate) {
  auto* command =
      app.add_subcommand("generate", "completes a prompt and prints the text as it comes");
  add_model(*command, where);
  add_lambda_scale(*command, where);
  auto* prompt = command->add_option("--prompt", generate.prompt, "text to complete");
  auto* tokens =
      command->add_option("--tokens", generate.tokens, "ids instead of a prompt, e.g. 1,2,3");
  prompt->excludes(tokens);
  command->add_flag("--chat", generate.chat,
                    "the prompt is a user's message for the model's chat template");
  serve::Request& request = generate.request;
  request.max_tokens = 128;
  command->add_option("--max-tokens", request.max_tokens, "most tokens to make (default 128)");
  command->add_option("--temperature", request.sampling.temperature, "0 (greedy) to 2, default 1");
  command->add_option("--top-p", request.sampling.top_p, "nucleus, default 1 (off)");
  command->add_option("--top-k", request.sampling.top_k, "default 0 (off)");
  command->add_option("--min-p", request.sampling.min_p, "default 0 (off)");
  command->add_option("--repetition-penalty", request.sampling.repetition_penalty,
                      "default 1 (off)");
  command->add_option("--seed", request.sampling.seed,
                      "the same seed gives the same text (default: random)");
  command->add_option("--stop", request.stop,
                      "a string that ends the text; may be given several times");
  command->add_flag("--ignore-eos", request.ignore_eos, "go on after the end of sequence");
  command->add_flag("--echo", request.echo, "print the prompt first");
  command->add_flag("--stats", generate.stats, "a line of figures to stderr at the end");
  return command;
}

CLI::App* add_measure(CLI::App& app, serve::LocalModel& where, serve::MeasureCommand& measure) {
  auto* command = app.add_subcommand(
      "measure", "times greedy decoding of a fixed length, prints one line of JSON");
  add_model(*command, where);
  add_lambda_scale(*command, where);
  const auto add = [&](const char* name, int32_t& value, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(1, 1 << 20))->capture_default_str();
  };
  add("--batch", measure.batch, "sequences decoded together");
  add("--prompt-tokens", measure.prompt_tokens, "ids a sequence");
  add("--new-tokens", measure.new_tokens, "made a sequence, the first of them by the prefill");
  add("--repeats", measure.repeats, "measured runs after one to warm up");
  command->add_option("--tokens", measure.tokens, "the ids of every prompt (default: a formula)");
  auto* adapters =
      command
          ->add_option("--adapters", measure.adapters,
                       "a folder with a folder for each adapter, which sequences take in turn by "
                       "name")
          ->type_name("DIR")
          ->excludes(command->get_option("--adapter"));
  command->add_option("--distinct", measure.distinct, "only so many of them (default: all)")
      ->needs(adapters)
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_flag("--branch-apart", measure.branch_apart,
                 "compute their branches beside W_O, which then is the base's for all of them, "
                 "instead of folding them into one each")
      ->needs(adapters);
  return command;
}

CLI::App* add_heads(CLI::App& app, dex::evaluate::HeadsCommand& heads) {
  auto* command = app.add_subcommand(
      "heads", "measures the attention heads on given token ids, prints one line of JSON");
  command->add_option("--model", heads.model, "Hugging Face folder of the base model")
      ->required()
      ->type_name("DIR");
  command->add_option("--adapter", heads.adapter, "folder of an adapter made for it")
      ->type_name("DIR");
  command->add_option("--tokens-file", heads.tokens_file, "JSON array of arrays of token ids")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--i-min", heads.i_min,
                   "first rows of each map that are not counted; sequences without a later row "
                   "say nothing about entropy, and when none has one, it is normalised from row 1")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--measures", heads.measures,
                   "entropy,importance (default), cosine, cka, sparsity, hessian (slow)")
      ->delimiter(',')
      ->check(CLI::IsMember(dex::evaluate::head_measures()));
  command->add_option("--threads", heads.threads, "compute threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--dtype", heads.dtype,
                   "of the weights: f32, as analyses measure, though importance and the entropy "
                   "beside it are computed in fp64; f64: everything is (not with hessian)")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  return command;
}

uint64_t random_seed() {
  uint64_t seed = 0;
  dex::base::SystemRandom random;
  random.fill({reinterpret_cast<uint8_t*>(&seed), sizeof(seed)});
  return seed;
}

// Ends the process at Ctrl-C: these commands have nothing to save.
int run_local(const std::function<void()>& command) {
  try {
    command();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "dex-engine: " << error.what() << std::endl;
    return 1;
  }
}

// Serves, or runs one evaluation.
int run_framed(int fd, bool evaluation) {
  // An agent that is gone takes its engine along; one that went before this line is seen as a
  // closed channel.
  if (!dex::base::die_with_parent()) return 1;
  const dex::base::StopSignals signals;
  const dex::base::SystemClock clock;
  dex::base::SystemRandom random;
  const auto logging = dex::base::init_logging({.component = evaluation ? "evaluator" : "engine"});
  if (!logging.ok()) std::cerr << "dex-engine: " << logging.message() << std::endl;
  try {
    dex::base::FrameChannel channel((dex::base::Fd(fd)));
    return evaluation ? serve::run_evaluation_frames(channel, signals, clock)
                      : serve::serve_frames(channel, signals, clock, random);
  } catch (const std::exception& error) {
    spdlog::error("engine ends: {}", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kHelp, "dex-engine");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(dex::base::version()));
  serve::LocalModel where;
  serve::GenerateCommand generate;
  generate.request.sampling.seed = random_seed();
  serve::MeasureCommand measure;
  std::string score_tokens;
  int frames_fd = -1;
  auto* generate_app = add_generate(app, where, generate);
  auto* score_app =
      app.add_subcommand("score", "log-probability of each token from the second on, a JSON array");
  add_model(*score_app, where);
  add_lambda_scale(*score_app, where);
  score_app->add_option("--tokens", score_tokens, "ids, e.g. 1,2,3")->required();
  std::string folded;
  auto* fold_app = app.add_subcommand(
      "fold", "writes the model with the adapter inside, prints how exact it is");
  add_model(*fold_app, where);
  fold_app->add_option("--out", folded, "folder to make")->required()->type_name("DIR");
  std::string unilm, converted;
  auto* convert_app = app.add_subcommand("convert", kConvert);
  convert_app->add_option("--model", unilm, "folder to read")->required()->type_name("DIR");
  convert_app->add_option("--out", converted, "folder to make")->required()->type_name("DIR");
  auto* measure_app = add_measure(app, where, measure);
  dex::evaluate::HeadsCommand heads;
  auto* heads_app = add_heads(app, heads);
  serve::EvaluateDoor evaluate(app);
  auto* serve_app = app.add_subcommand("serve", "answers an agent's frames");
  auto* evaluation_app = app.add_subcommand(
      "evaluation",
      "runs what an agent describes in frames: an evaluation, or taking an adapter in or a folded "
      "model out");
  for (auto* framed : {serve_app, evaluation_app})
    framed->add_option("--frames-fd", frames_fd, "inherited socket to the agent")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (generate_app->parsed() &&
      generate_app->count("--prompt") + generate_app->count("--tokens") == 0) {
    std::cerr << "dex-engine: generate needs --prompt TEXT or --tokens IDS; see dex-engine "
                 "generate --help"
              << std::endl;
    return kUsage;
  }
  if (heads_app->parsed())  // computes with LibTorch's threads, not with the engine's
    return run_local([&] { dex::evaluate::heads(heads, std::cout, std::cerr); });
  if (evaluate.parsed()) return evaluate.run();
  serve::use_one_library_thread();
  const dex::base::SystemClock clock;
  if (serve_app->parsed() || evaluation_app->parsed())
    return run_framed(frames_fd, evaluation_app->parsed());
  if (score_app->parsed())
    return run_local([&] { serve::score(where, score_tokens, clock, std::cout); });
  if (fold_app->parsed()) return run_local([&] { serve::fold(where, folded, std::cout); });
  if (convert_app->parsed()) {
    return run_local(
        [&] { std::cout << dex::model::convert_unilm(unilm, converted) << std::endl; });
  }
  if (measure_app->parsed())
    return run_local([&] { serve::measure(where, measure, clock, std::cout); });
  return run_local([&] { serve::generate(where, generate, clock, std::cout, std::cerr); });
}
