// `dexctl compare`: what several models say to one prompt with one seed, side by side.
#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/sampling_flags.h"
#include "client/cli/token_difference.h"

namespace dex::cli {

namespace {

struct CompareArguments {
  std::vector<std::string> models;
  std::string prompt, message, system;
  SamplingFlags sampling;
};

// "ftckpt-<ulid of its job>-<step>", as `checkpoints list` prints it.
struct CheckpointId {
  std::string job;
  uint32_t step = 0;
};

std::optional<CheckpointId> checkpoint_id(const std::string& name) {
  constexpr std::string_view kPrefix = "ftckpt-";
  const size_t dash = name.rfind('-');
  if (!name.starts_with(kPrefix) || dash < kPrefix.size()) return std::nullopt;
  CheckpointId id{"ftjob-" + name.substr(kPrefix.size(), dash - kPrefix.size())};
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + dash + 1, end, id.step);
  return read.ec == std::errc() && read.ptr == end ? std::optional(id) : std::nullopt;
}

// What generates for a checkpoint: its job's adapter, where that is what was published of this
// step. No other step of a job can be called.
base::Result<std::string> served_name(Context& context, const std::string& name) {
  const auto id = checkpoint_id(name);
  if (!id) return name;
  DEX_ASSIGN_OR_RETURN(const auto job, context.client.get_job(id->job));
  if (job.fine_tuned_model().empty()) {
    return base::failed_precondition("JOB_STATE_CONFLICT",
                                     "checkpoint " + name + " can't answer: job " + job.id() +
                                         " has published nothing; watch it: dexctl jobs watch " +
                                         job.id());
  }
  const auto served = job.metrics().served_step();
  if (served == id->step) return job.fine_tuned_model();
  return base::failed_precondition(
      "JOB_STATE_CONFLICT", "checkpoint " + name + " is of step " + std::to_string(id->step) +
                                ", and job " + job.id() + " has published step " +
                                std::to_string(served) + ": compare " + job.fine_tuned_model() +
                                ", which is that one");
}

// "ft:…@0.5": at half its strength.
base::Status split_strength(std::string& name, v1::GenerateRequest& request) {
  const size_t at = name.rfind('@');
  if (at == std::string::npos) return {};
  double scale = 0;
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + at + 1, end, scale);
  if (read.ec != std::errc() || read.ptr != end || scale < 0 || scale > 1) {
    return base::invalid_field(
        "models", "behind @ stands a number from 0 to 1, as in ft:…@0.5; got '" + name + "'");
  }
  request.set_dex_lambda_scale(scale);
  name.resize(at);
  return {};
}

base::Result<v1::GenerateRequest> request_of(Context& context, const CompareArguments& arguments,
                                             std::string name) {
  v1::GenerateRequest request;
  DEX_RETURN_IF_ERROR(split_strength(name, request));
  DEX_ASSIGN_OR_RETURN(*request.mutable_model(), served_name(context, name));
  if (arguments.message.empty()) {
    request.set_prompt(arguments.prompt);
  } else {
    auto& chat = *request.mutable_chat();
    const auto add = [&](const char* role, const std::string& content) {
      auto* message = chat.add_messages();
      message->set_role(role);
      message->set_content(content);
    };
    if (!arguments.system.empty()) add("system", arguments.system);
    add("user", arguments.message);
  }
  arguments.sampling.apply(request);
  request.set_logprobs(0);  // brings the text of each token
  request.set_return_token_ids(true);
  return request;
}

// One after the other; all with the seed of the first, which the server draws if none is given.
base::Result<std::vector<v1::GenerateResponse>> answers(Context& context,
                                                        const CompareArguments& arguments) {
  std::vector<v1::GenerateRequest> requests;
  for (const auto& name : arguments.models) {
    DEX_ASSIGN_OR_RETURN(auto request, request_of(context, arguments, name));
    requests.push_back(std::move(request));
  }
  std::vector<v1::GenerateResponse> replies;
  for (auto& request : requests) {
    if (!replies.empty()) request.set_seed(replies.front().seed());
    DEX_ASSIGN_OR_RETURN(auto reply, context.client.generate(request));
    replies.push_back(std::move(reply));
  }
  return replies;
}

std::vector<int32_t> ids_of(const v1::GenerateResponse& reply) {
  std::vector<int32_t> ids;
  for (const auto& token : reply.logprobs()) ids.push_back(token.token_id());
  return ids;
}

void show(Context& context, const CompareArguments& arguments,
          const std::vector<v1::GenerateResponse>& replies) {
  const auto& terminal = context.output.terminal();
  std::vector<std::vector<int32_t>> texts;
  for (const auto& reply : replies) texts.push_back(ids_of(reply));
  const auto difference = token_difference(texts);
  const std::string open = terminal.color ? "\x1b[7m" : "⟦",
                    close = terminal.color ? "\x1b[0m" : "⟧";
  for (size_t i = 0; i < replies.size(); ++i) {
    context.output.out() << (i > 0 ? "\n" : "") << bold(terminal, arguments.models[i]) << "\n"
                         << marked_text(replies[i], difference.same[i], open, close) << "\n";
  }
  context.output.out().flush();
  const std::string seed = "seed " + std::to_string(replies.front().seed());
  context.output.note(dim(terminal, difference.first < 0
                                        ? seed + ", all the same"
                                        : seed + ", the first difference is token " +
                                              std::to_string(difference.first + 1) +
                                              "; what differs is " +
                                              (terminal.color ? "reversed" : "in ⟦ ⟧")));
}

int compare(Context& context, const CompareArguments& arguments) {
  const auto replies = answers(context, arguments);
  if (!replies.ok()) return context.output.failure(replies.status());
  if (context.output.format() == Format::kTable) {
    show(context, arguments, *replies);
  } else {
    for (const auto& reply : *replies) context.output.result(reply, reply.id(), {});
  }
  return kDone;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto* verb = add_verb(
      app, "compare",
      "what models, adapters and checkpoints say to the same text with the same seed; tokens that "
      "differ are marked",
      "dexctl compare smollm2-135m-instruct ft:… --prompt \"def add(a, b):\" --max-tokens 40\n"
      "dexctl compare smollm2-135m-instruct ft:… ft:…@0.5 --message \"What does zip() do?\"");
  auto arguments = std::make_shared<CompareArguments>();
  verb->add_option("models", arguments->models,
                   "two to eight base models, adapters, or checkpoints (that which its job has "
                   "published); ID@0.5 is an adapter at half its strength")
      ->required()
      ->expected(2, 8);
  auto* prompt = verb->add_option("--prompt", arguments->prompt, "the text that they continue");
  auto* message = verb->add_option("--message", arguments->message,
                                   "in its place a question, through each one's chat template");
  message->excludes(prompt);
  verb->add_option("--system", arguments->system, "the system message before --message")
      ->needs(message);
  arguments->sampling.add_to(*verb);
  // It would be one strength for all, and base models have none: ID@0.5 says it of one.
  verb->remove_option(verb->get_option("--lambda-scale"));
  verb->callback([&action, arguments] {
    if (arguments->prompt.empty() && arguments->message.empty())
      throw CLI::RequiredError("--prompt or --message");
    action = [=](Context& c) { return compare(c, *arguments); };
  });
}

}  // namespace dex::cli
