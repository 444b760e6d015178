#include "worker/serve/evaluate_door.h"

#include <iostream>

#include "services/base/clock.h"
#include "services/base/signals.h"
#include "worker/serve/serving_model.h"

namespace dex::serve {
namespace {

constexpr const char* kEvaluate =
    R"(Measures a base model, and adapters against it on the same samples.

  dex-engine evaluate perplexity      --model DIR --file wiki.test.raw
  dex-engine evaluate multi_needle    --model DIR --adapter DIR --file book.txt --lengths 1024,2048
  dex-engine evaluate multiple_choice --model DIR --file mmlu_test.csv --shots-file mmlu_dev.csv --n-shot 5
  dex-engine evaluate icl             --model DIR --file reviews.jsonl --shots 0,4,16
  dex-engine evaluate answers         --model DIR --file questions.jsonl
  dex-engine evaluate head_analysis   --model DIR --adapter DIR --file wiki.test.raw --metrics entropy,cka
  dex-engine evaluate instructions    --model DIR --adapter DIR --file alpaca_eval.json --out answers/

Each number comes with its interval; each adapter also with its difference to the base and a verdict: BETTER or WORSE
when the difference is beyond chance, else NO_DIFFERENCE. Rows go to stdout, progress to stderr. Ctrl-C stops and shows
the rows over what was measured until then (exit code 130); a second one ends at once.
'dex-engine evaluate TASK --help' tells what a task's file looks like.)";

constexpr const char* kPerplexity =
    R"(How well the model predicts a text: loss, perplexity, bits a byte (lower is better).

FILE is plain text as WikiText-2 and Penn Treebank are published, or JSON Lines {"text", "tag"?, "language"?}.
  dex-engine evaluate perplexity --model DIR --file wiki.test.raw --context-length 1024 --stride 512
  dex-engine evaluate perplexity --model DIR --adapter DIR --file code.validation.jsonl --group-by language
Only bits a byte compares models with different tokenizers.)";

constexpr const char* kMultiNeedle =
    R"(Whether the model finds facts in long texts: sentences "The magic number of CITY is NUMBER." are hidden in a
filler, and some of the numbers are asked for. Rows by length and depth, and a heat map; with several --n-needles all
of that for each. In the same run, what the attention of the prompt's last token falls on: the answer's needle (signal),
filler and other needles (noise), the rest.

FILE is the filler: plain text of ordinary sentences, or JSON Lines {"text"}. Without --file it is a text that comes with
the program, of sentences made from templates.
  dex-engine evaluate multi_needle --model DIR --lengths 1024,2048
  dex-engine evaluate multi_needle --model DIR --file book.txt --lengths 1024,2048,4096 --n-needles 4 --n-queries 2
  dex-engine evaluate multi_needle --model DIR --file book.txt --n-needles 1,2,4,6,8 --n-queries 1,2,2,2,1)";

constexpr const char* kMultipleChoice =
    R"(Which of several answers the model finds likeliest: acc by the sum of log-probabilities, acc_norm by the sum a
byte, acc_per_token by the sum a token.

FILE is MMLU's CSV (question,A,B,C,D,answer), JSON Lines {"question", "choices": […], "answer": index or letter}, or
BBQ's JSON Lines (context, question, ans0, ans1, ans2, label).
  dex-engine evaluate multiple_choice --model DIR --file Age.jsonl
  dex-engine evaluate multiple_choice --model DIR --file test.csv --shots-file dev.csv --n-shot 5 --letters)";

constexpr const char* kIcl =
    R"(Classification from examples in the prompt, by their number and order.

FILE is JSON Lines {"text", "label"}; examples and questions are drawn from it.
  dex-engine evaluate icl --model DIR --file reviews.jsonl --shots 0,4,16 --n-orders 10 --order both)";

constexpr const char* kAnswers =
    R"(Greedy answers checked against given ones: exact, contains, f1 (case, punctuation and articles do not count); and
against the text that they must keep to: numbers and capitalised names that it lacks, per 100 words (strings, not truth).

FILE is JSON Lines {"prompt" or "messages", "answers", "source"?}, or questions over given text as Natural Questions has
them, {"question", "context"?, "answers"}; "answers" (or NQ-open's "answer") is a string or an array of them. Texts to sum up have a "source" and need no answers.
  dex-engine evaluate answers --model DIR --adapter DIR --file nq.jsonl --samples 200)";

constexpr const char* kHeadAnalysis =
    R"(How the attention heads look, in fp32 on sequences cut from a text: entropy, importance, cosine_distance of two heads'
maps, cka of two heads' features (a note says n/d), sparsity (with negative_share and negative_mass of signed maps, and
the directions that a folding branch takes away), and on request hessian, the dominant eigenvalue of a sequence's loss
with its histogram, which takes minutes a sequence. Maps are signed with an adapter of form uniform_map and on models that subtract maps;
their entropy is that of |M| renormalised, which a note says. Rows for each head, each pair, each layer and over all; a difference
beyond chance is DIFFERENT, since neither more nor less is better.

FILE is plain text or JSON Lines {"text"}.
  dex-engine evaluate head_analysis --model DIR --adapter DIR --file wiki.test.raw --n-sequences 8 --seq-length 512)";

constexpr const char* kInstructions =
    R"(Answers to instructions, written for a judge of your choice; nothing is judged here.

FILE is AlpacaEval's evaluation set (a JSON list of {"instruction"}) or the same as JSON Lines. OUT gets
outputs-LABEL.json for each model in AlpacaEval's format; for each adapter pairs-LABEL.json, in which a seeded draw hides
who is who, and its key pairs-LABEL.key.json.
  dex-engine evaluate instructions --model DIR --adapter DIR --file alpaca_eval.json --out answers/)";

}  // namespace

EvaluateDoor::EvaluateDoor(CLI::App& app) : evaluate_(app.add_subcommand("evaluate", kEvaluate)) {
  evaluate_->require_subcommand(1);
  add_perplexity();
  add_multi_needle();
  add_multiple_choice();
  add_icl();
  add_answers();
  add_head_analysis();
  add_instructions();
}

CLI::App* EvaluateDoor::add_task(const char* name, const char* help) {
  CLI::App* task = evaluate_->add_subcommand(name, help);
  task->callback([this, name] { command_.task = name; });
  task->add_option("--model", command_.model, "Hugging Face folder of the base model")
      ->required()
      ->type_name("DIR");
  task->add_option(
          "--adapter", command_.adapters,
          "folder of an adapter to compare with the base; may be given several times. none: "
          "the base once more")
      ->type_name("DIR")
      ->allow_extra_args(false);
  task->add_option("--file", command_.file, "the data")
      ->required()
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  task->add_option("--seed", command_.seed, "of every draw: the same seed, the same numbers")
      ->capture_default_str();
  task->add_option("--confidence", command_.confidence, "of intervals and verdicts")
      ->check(CLI::Range(0.5, 0.999))
      ->capture_default_str();
  task->add_option("--samples-out", command_.samples_out, "every sample as a line of JSON")
      ->type_name("FILE");
  task->add_flag("--json", command_.json, "rows as JSON instead of a table");
  task->add_option(
          "--dtype", command_.dtype,
          "bf16: weights and KV cache in bf16; f32: nothing is rounded; int8: weights in "
          "eight bits, a scale an output channel, int4: in four, a scale and a minimum for "
          "32 of them (default: as stored)")
      ->check(CLI::IsMember({"bf16", "f32", "int8", "int4"}));
  task->add_flag("--against-int8", command_.against_int8,
                 "what eight-bit weights cost: the base, then each adapter, against itself with "
                 "--dtype int8; with the largest hidden state and attention logit of either");
  task->add_option("--threads", command_.threads, "compute threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  return task;
}

void EvaluateDoor::add_format(CLI::App& task) {
  task.add_option("--format", command_.format, "of FILE; auto: .jsonl and .json are JSON Lines")
      ->check(CLI::IsMember({"auto", "raw", "jsonl"}))
      ->capture_default_str();
  task.add_flag("--allow-extrapolation", command_.allow_extrapolation,
                "lengths beyond what the model was trained for");
}

void EvaluateDoor::add_samples(CLI::App& task, const char* help) {
  task.add_option("--samples", command_.samples, help)->check(CLI::Range(1, 1 << 30));
}

void EvaluateDoor::add_perplexity() {
  CLI::App& task = *add_task("perplexity", kPerplexity);
  auto& options = command_.perplexity;
  task.add_option("--context-length", options.context_length,
                  "tokens of a window (default: 2048, or the model's context if that is less)")
      ->check(CLI::Range(2, 1 << 24));
  task.add_option("--stride", options.stride, "tokens from window to window (default: half of it)")
      ->check(CLI::Range(1, 1 << 24));
  task.add_option("--max-tokens", options.max_tokens, "of the text, from its beginning")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 40))
      ->capture_default_str();
  task.add_option("--group-by", options.group_by,
                  "rows for each tag, each language, each length_bucket (tokens of a document)")
      ->check(CLI::IsMember({"tag", "language", "length_bucket"}))
      ->delimiter(',');
  add_format(task);
}

void EvaluateDoor::add_multi_needle() {
  CLI::App& task = *add_task("multi_needle", kMultiNeedle);
  task.get_option("--file")->required(false)->description("the filler (default: a shipped text)");
  auto& options = command_.multi_needle;
  task.add_option("--lengths", options.lengths,
                  "tokens of the whole prompt and its answer (default: powers of two from 1024 to "
                  "the model's limit)")
      ->check(CLI::Range(1, 1 << 24))
      ->delimiter(',');
  task.add_option("--depths-percent", options.depths_percent,
                  "where the first asked needle stands (default: 0,25,50,75,100)")
      ->delimiter(',');
  task.add_option("--n-needles", options.needle_counts,
                  "hidden sentences (default: 6); several, 1,2,4,8: a grid for each in one run")
      ->delimiter(',');
  task.add_option("--n-queries", options.query_counts,
                  "of them asked for: one number, or one for each of --n-needles (default: 2, or "
                  "all where there are fewer)")
      ->delimiter(',');
  task.add_option("--samples-per-cell", options.samples_per_cell, "prompts a length and depth")
      ->capture_default_str();
  task.add_flag("--chat", command_.chat, "ask as a user's message of the model's chat template");
  add_format(task);
}

void EvaluateDoor::add_multiple_choice() {
  CLI::App& task = *add_task("multiple_choice", kMultipleChoice);
  auto& options = command_.multiple_choice;
  task.add_option("--n-shot", options.shots, "examples with their answers before each question")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  task.add_option("--shots-file", command_.shots_file,
                  "where examples are drawn from (default: FILE; they are then not asked)")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  task.add_flag("--letters", options.letters, "list the choices and score their letters");
  const auto take_score = [this](const std::string& name) {
    using Score = evaluate::MultipleChoice::Score;
    command_.multiple_choice.score = name == "sum"        ? Score::kSum
                                     : name == "per_byte" ? Score::kPerByte
                                                          : Score::kPerToken;
  };
  task.add_option_function<std::string>("--score", take_score,
                                        "only the row of this score (default: a row for each)")
      ->check(CLI::IsMember({"sum", "per_byte", "per_token"}));
  add_samples(task, "a seeded draw of so many questions (default: all)");
}

void EvaluateDoor::add_icl() {
  CLI::App& task = *add_task("icl", kIcl);
  auto& options = command_.icl;
  task.add_option("--shots", options.shots, "numbers of examples (default: 0,4,16,64)")
      ->delimiter(',');
  task.add_option("--n-orders", options.orders, "random orders of the same examples")
      ->capture_default_str();
  task.add_option("--order", command_.order, "by_class: sorted by label, up and down")
      ->check(CLI::IsMember({"random", "by_class", "both"}))
      ->capture_default_str();
  add_samples(task, "questions, a seeded draw (default: 200)");
}

void EvaluateDoor::add_answers() {
  CLI::App& task = *add_task("answers", kAnswers);
  task.add_option("--max-tokens", command_.answers.max_tokens, "of an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  task.add_flag("--chat", command_.chat,
                "prompts are users' messages of the model's chat template");
  const auto take_match = [this](const std::string& name) {
    using Match = evaluate::Answers::Match;
    command_.answers.match = name == "exact"      ? Match::kExact
                             : name == "contains" ? Match::kContains
                                                  : Match::kF1;
  };
  task.add_option_function<std::string>("--match", take_match,
                                        "only the row of this comparison (default: a row for each)")
      ->check(CLI::IsMember({"exact", "contains", "f1"}));
  add_samples(task, "a seeded draw of so many (default: all)");
}

void EvaluateDoor::add_head_analysis() {
  CLI::App& task = *add_task("head_analysis", kHeadAnalysis);
  auto& options = command_.head_analysis;
  task.add_option("--metrics", command_.head_metrics, "default: all but hessian")
      ->check(CLI::IsMember(evaluate::head_metrics()))
      ->delimiter(',');
  task.add_option("--n-sequences", options.sequences, "a seeded choice, the longest first")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  task.add_option("--seq-length", options.length, "tokens of a sequence at most")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  task.add_option("--skip-rows", options.question.skip_rows,
                  "first rows of each map that entropy and cosine distance leave out")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  task.add_option("--format", command_.format, "of FILE; auto: .jsonl and .json are JSON Lines")
      ->check(CLI::IsMember({"auto", "raw", "jsonl"}))
      ->capture_default_str();
}

void EvaluateDoor::add_instructions() {
  CLI::App& task = *add_task("instructions", kInstructions);
  task.add_option("--max-tokens", command_.instructions.max_tokens, "of an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  task.add_option("--out", command_.out, "folder for the files")->required()->type_name("DIR");
}

int EvaluateDoor::run() {
  const base::StopSignals signals;
  const base::SystemClock clock;
  use_one_library_thread();
  try {
    return run_evaluation(command_, signals, clock, std::cout, std::cerr);
  } catch (const std::exception& error) {
    std::cerr << "dex-engine: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace dex::serve
