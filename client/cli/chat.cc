#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/sampling_flags.h"

namespace dex::cli {

namespace {

struct ChatArguments {
  std::string model;
  std::string system;
  std::string message;
  bool no_stream = false;
  SamplingFlags sampling;
};

void add_message(v1::ChatInput& chat, const std::string& role, const std::string& content) {
  auto* message = chat.add_messages();
  message->set_role(role);
  message->set_content(content);
}

// One answer, printed as it comes (for scripts: whole) and added to the conversation.
base::Status answer(Context& context, const ChatArguments& arguments, v1::ChatInput& chat) {
  v1::GenerateRequest request;
  request.set_model(arguments.model);
  *request.mutable_chat() = chat;
  arguments.sampling.apply(request);
  if (context.output.format() != Format::kTable) {
    DEX_ASSIGN_OR_RETURN(const auto reply, context.client.generate(request));
    context.output.result(reply, reply.id(), {});
    add_message(chat, "assistant", reply.text());
    return {};
  }
  if (arguments.no_stream) {
    DEX_ASSIGN_OR_RETURN(const auto reply, context.client.generate(request));
    context.output.out() << reply.text() << std::endl;
    add_message(chat, "assistant", reply.text());
    return {};
  }
  std::string text;
  const base::Status status =
      context.client.generate_stream(request, [&](const v1::GenerateStreamResponse& event) {
        if (!event.has_delta()) return true;
        text += event.delta().text();
        context.output.out() << event.delta().text() << std::flush;
        return true;
      });
  context.output.out() << std::endl;
  if (status.ok()) add_message(chat, "assistant", text);
  return status;
}

int converse(Context& context, const ChatArguments& arguments, v1::ChatInput& chat) {
  context.output.note(dim(context.output.terminal(), "chatting with " + arguments.model +
                                                         "; an empty line or Ctrl-D ends it"));
  while (!context.stop.stop_requested()) {
    if (context.output.terminal().can_ask)
      context.output.err() << bold(context.output.terminal(), "> ") << std::flush;
    std::string line;
    if (!std::getline(std::cin, line) || line.empty()) break;
    add_message(chat, "user", line);
    const base::Status status = answer(context, arguments, chat);
    if (!status.ok()) return context.output.failure(status);
  }
  return kDone;
}

// The model that is meant where none was named: the one that is served, if it is the only one.
base::Result<std::string> only_model(Context& context) {
  DEX_ASSIGN_OR_RETURN(const auto reply, context.client.list_models());
  std::vector<std::string> served;
  for (const auto& model : reply.models())
    if (model.served()) served.push_back(model.name());
  if (served.size() == 1) return served.front();
  if (served.empty())
    return base::unavailable("NO_WORKER",
                             "no base model is served just now; see dexctl models list")
        .with_metadata("category", "CAPACITY");
  return base::invalid_argument("MISSING_FIELD", "name the model, since several are served: " +
                                                     CLI::detail::join(served, ", "));
}

int chat(Context& context, ChatArguments arguments) {
  if (arguments.model.empty()) {
    const auto model = only_model(context);
    if (!model.ok()) return context.output.failure(model.status());
    arguments.model = *model;
  }
  v1::ChatInput conversation;
  if (!arguments.system.empty()) add_message(conversation, "system", arguments.system);
  if (arguments.message.empty()) return converse(context, arguments, conversation);
  add_message(conversation, "user", arguments.message);
  const base::Status status = answer(context, arguments, conversation);
  return status.ok() ? kDone : context.output.failure(status);
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto* verb = add_verb(
      app, "chat", "talk to a base model or an adapter through its chat template",
      "dexctl chat smollm2-135m-instruct --message \"What does zip() do?\" --max-tokens 80");
  auto arguments = std::make_shared<ChatArguments>();
  verb->add_option("model", arguments->model,
                   "base model or adapter id; may be left out where one base model is served");
  verb->add_option("--system", arguments->system, "the system message");
  verb->add_option("--message", arguments->message,
                   "one question; without it a conversation line by line");
  verb->add_flag("--no-stream", arguments->no_stream, "print each answer when it is complete");
  arguments->sampling.add_to(*verb);
  verb->callback(
      [&action, arguments] { action = [=](Context& c) { return chat(c, *arguments); }; });
}

}  // namespace dex::cli
