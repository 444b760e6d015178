#include "client/cli/man_page.h"

#include <CLI/CLI.hpp>

#include "client/cli/command_line.h"
#include "client/cli/exit_code.h"

namespace dex::cli {

namespace {

// Text as groff prints it: a backslash and a hyphen that a reader may copy are escaped, and no line
// begins with a dot or a quote, which would be a request.
std::string escaped(std::string_view text) {
  std::string out;
  bool line_starts = true;
  for (const char c : text) {
    if (line_starts && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_starts = c == '\n';
  }
  return out;
}

std::string bold_text(std::string_view text) {
  return "\\fB" + escaped(text) + "\\fR";
}
std::string italic_text(std::string_view text) {
  return "\\fI" + escaped(text) + "\\fR";
}

std::string entry(const std::string& head, std::string_view body) {
  return ".TP\n" + head + "\n" + escaped(body) + "\n";
}

std::string verbatim(std::string_view title, std::string_view lines) {
  return ".PP\n" + std::string(title) + "\n.PP\n.nf\n" + escaped(lines) + ".fi\n";
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// -q, --quiet · --server TEXT · id
std::string option_head(const CLI::Option& option) {
  if (!option.nonpositional()) return italic_text(option.get_name(true));
  std::string head;
  for (const auto& name : option.get_snames())
    head += (head.empty() ? "" : ", ") + bold_text("-" + name);
  for (const auto& name : option.get_lnames())
    head += (head.empty() ? "" : ", ") + bold_text("--" + name);
  if (option.get_items_expected_max() > 0) head += " " + italic_text(option.get_type_name());
  return head;
}

std::string options(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (option != command.get_help_ptr())
      text += entry(option_head(*option), option->get_description());
  }
  return text;
}

std::string synopsis(const std::string& name, const CLI::App& command) {
  std::string line = bold_text(name) + " [" + italic_text("options") + "]";
  for (const CLI::Option* option : command.get_options()) {
    if (option->nonpositional()) continue;
    const std::string argument =
        italic_text(option->get_name(true)) + (option->get_items_expected_max() > 1 ? " ..." : "");
    line += option->get_required() ? " " + argument : " [" + argument + "]";
  }
  return line;
}

std::string examples(const CLI::App& command) {
  std::string lines;
  const auto all = examples_of(command);
  for (const auto& example : all) lines += example + "\n";
  return all.empty() ? "" : verbatim(all.size() == 1 ? "Example:" : "Examples:", lines);
}

std::string other_names(const CLI::App& command) {
  std::string text;
  for (const auto& alias : command.get_aliases())
    text += (text.empty() ? " Also called " : ", ") + alias;
  return text.empty() ? "" : text + ".";
}

// A command, or those of a noun, each in a section of its own.
std::string sections(const std::string& name, const CLI::App& command) {
  const auto verbs = subcommands_of(command);
  std::string text;
  for (const CLI::App* verb : verbs) text += sections(name + " " + verb->get_name(), *verb);
  if (!verbs.empty()) return text;
  return ".SS " + escaped(name) + "\n" + synopsis(name, command) + "\n.PP\n" +
         escaped(command.get_description() + "." + other_names(command)) + "\n" + options(command) +
         examples(command);
}

std::string environment() {
  return ".SH ENVIRONMENT\n" +
         entry(bold_text("DEX_SERVER"), "The platform's address, where --server gives none.") +
         entry(bold_text("DEX_DATA_DIR"),
               "The folder of a dexd on this machine, whose endpoints.json names its address.") +
         entry(bold_text("NO_COLOR"), "When not empty: no colors.") +
         entry(bold_text("XDG_CONFIG_HOME"), "Where dex/config.toml lies, instead of ~/.config.");
}

std::string files() {
  return ".SH FILES\n" +
         entry(bold_text("~/.config/dex/config.toml"),
               "Profiles. It is refused when others can read it: chmod 600.") +
         verbatim("With two of them:",
                  "[profile.default]\nserver = \"127.0.0.1:50051\"\n"
                  "[profile.work]\nserver = \"dex.example:50051\"\noutput = \"json\"\n") +
         entry(bold_text("~/.local/share/dex/endpoints.json"),
               "Written by a dexd on this machine: the address that is taken without another.");
}

std::string exit_codes() {
  struct Code {
    ExitCode code;
    const char* means;
  };
  constexpr Code kCodes[] = {
      {kDone, "Done; of a job that was followed: it succeeded."},
      {kOwnFault, "A fault in dexctl itself."},
      {kUsage, "The command line is wrong, or nobody could be asked and --yes was not given."},
      {kUserFault, "Request or data must be repaired; also what was not found and invalid files."},
      {kSystemFault, "A fault of the platform: try again, or ask its operator."},
      {kJobStopped, "The job was cancelled or has expired."},
      {kCapacity, "No room now: try later, or ask for less."},
      {kNotPassed, "A gate or a comparison was not passed; doctor has warnings."},
      {kInterrupted, "Interrupted; what was watched goes on."}};
  std::string text = ".SH EXIT STATUS\n";
  for (const auto& each : kCodes) text += entry(bold_text(std::to_string(each.code)), each.means);
  return text;
}

}  // namespace

std::string man_page(const CLI::App& root, std::string_view version) {
  std::string text = ".\\\" Made by dexctl man; don't edit.\n.TH DEXCTL 1 \"\" \"dexctl " +
                     escaped(version) + "\" \"DEX fine-tuning\"\n";
  text += ".SH NAME\ndexctl \\- command line of the DEX fine-tuning platform\n";
  text += ".SH SYNOPSIS\n" + bold_text("dexctl") + " [" + italic_text("options") + "] " +
          italic_text("command") + " ...\n";
  text += ".SH DESCRIPTION\n" +
          escaped(
              "Results go to standard output, messages and progress to standard error. The "
              "options of dexctl itself may stand before or behind any command.") +
          "\n.SH OPTIONS\n" + options(root) + ".SH COMMANDS\n";
  for (const CLI::App* command : subcommands_of(root))
    text += sections("dexctl " + command->get_name(), *command);
  return text + environment() + files() + exit_codes();
}

}  // namespace dex::cli
