#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/sampling_flags.h"

namespace dex::cli {

namespace {

struct GenerateArguments {
  std::string model;
  std::string prompt;
  bool no_stream = false;
  SamplingFlags sampling;
};

int stream(Context& context, const v1::GenerateRequest& request) {
  v1::GenerateStreamResponse::Finish finish;
  const base::Status status =
      context.client.generate_stream(request, [&](const v1::GenerateStreamResponse& event) {
        if (event.has_delta()) context.output.out() << event.delta().text() << std::flush;
        if (event.has_finish()) finish = event.finish();
        return true;
      });
  context.output.out() << std::endl;
  if (!status.ok()) return context.output.failure(status);
  const double seconds = (finish.timing().total_ms() - finish.timing().first_token_ms()) / 1000;
  if (context.output.terminal().interactive && seconds > 0 &&
      finish.usage().completion_tokens() > 1) {
    context.output.note(dim(context.output.terminal(),
                            std::to_string(finish.usage().completion_tokens()) + " tokens, " +
                                human_count((finish.usage().completion_tokens() - 1) / seconds) +
                                " a second"));
  }
  return kDone;
}

int whole(Context& context, const v1::GenerateRequest& request) {
  const auto reply = context.client.generate(request);
  if (!reply.ok()) return context.output.failure(reply.status());
  if (context.output.format() == Format::kTable) {
    context.output.out() << reply->text() << std::endl;
  } else {
    context.output.result(*reply, reply->id(), {});
  }
  return kDone;
}

int generate(Context& context, const GenerateArguments& arguments) {
  v1::GenerateRequest request;
  request.set_model(arguments.model);
  std::string prompt = arguments.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  request.set_prompt(prompt);
  arguments.sampling.apply(request);
  const bool streams = !arguments.no_stream && context.output.format() == Format::kTable;
  return streams ? stream(context, request) : whole(context, request);
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto* verb = add_verb(app, "generate", "continue a text with a base model or an adapter",
                        "dexctl generate smollm2-135m-instruct --prompt \"def fibonacci(n):\" "
                        "--max-tokens 64 --temperature 0");
  verb->alias("complete");
  auto arguments = std::make_shared<GenerateArguments>();
  verb->add_option("model", arguments->model, "base model or adapter id")->required();
  verb->add_option("--prompt", arguments->prompt, "the text; - reads standard input")->required();
  verb->add_flag("--no-stream", arguments->no_stream, "print the text when it is complete");
  arguments->sampling.add_to(*verb);
  verb->callback(
      [&action, arguments] { action = [=](Context& c) { return generate(c, *arguments); }; });
}

}  // namespace dex::cli
