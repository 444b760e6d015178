// dexctl's command line as a whole: every command says what it is, with examples that parse; errors
// name the nearest word; the man page has everything.

#include "client/cli/command_line.h"

#include <gmock/gmock.h>

#include <functional>
#include <set>
#include <sstream>

#include "client/cli/did_you_mean.h"
#include "client/cli/man_page.h"

namespace dex::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Calls back with every command that does something, and its name: "dexctl jobs list".
void for_commands(const CLI::App& app, const std::string& name,
                  const std::function<void(const CLI::App&, const std::string&)>& each) {
  for (const CLI::App* sub : commands_of(app)) {
    const std::string path = name + " " + sub->get_name();
    EXPECT_THAT(sub->get_description(), Not(IsEmpty())) << path;
    if (commands_of(*sub).empty())
      each(*sub, path);
    else
      for_commands(*sub, path, each);
  }
}

// What a line ends with on stderr, and its exit code as CLI11 has it.
std::string error_of(const std::string& words) {
  CommandLine line;
  std::ostringstream out, err;
  try {
    line.app.parse(words);
  } catch (const CLI::ParseError& error) {
    EXPECT_NE(line.app.exit(error, out, err), 0) << words;
  }
  return err.str();
}

TEST(CommandLineTest, EveryCommandAndOptionSaysWhatItIs) {
  const CommandLine line;
  int commands = 0;
  for_commands(line.app, "dexctl", [&](const CLI::App& command, const std::string& name) {
    ++commands;
    std::set<std::string> own;
    for (const auto& example : examples_of(command))
      if ((example + " ").starts_with(name + " ")) own.insert(example);
    EXPECT_THAT(own, Not(IsEmpty())) << name << " has no example of itself";
    for (const CLI::Option* option : command.get_options())
      EXPECT_TRUE(option->has_description()) << name << " " << option->get_name(true, true);
  });
  EXPECT_GT(commands, 40);
}

// Everything up to a pipe or a redirection, which are the shell's.
TEST(CommandLineTest, EveryExampleIsAValidCommandLine) {
  const CommandLine all;
  for_commands(all.app, "dexctl", [](const CLI::App& command, const std::string& name) {
    for (const auto& example : examples_of(command)) {
      const std::string words = example.substr(0, example.find_first_of("|>"));
      CommandLine line;
      try {
        line.app.parse(words.substr(std::string("dexctl ").size()));
        EXPECT_TRUE(line.action || line.local) << example;
      } catch (const CLI::ParseError& error) {
        ADD_FAILURE() << name << ": " << example << ": " << error.what();
      }
    }
  });
}

TEST(CommandLineTest, TyposAreToldWithTheNearestWordOfTheirPlace) {
  EXPECT_EQ(error_of("job list"),
            "dexctl: dexctl has no command 'job' (did you mean jobs?)\ndexctl --help explains\n");
  EXPECT_EQ(error_of("jobs lst"),
            "dexctl: dexctl jobs has no command 'lst' (did you mean list?)\n"
            "dexctl jobs --help explains\n");
  EXPECT_THAT(error_of("jobs create --trainng-file x"),
              HasSubstr("dexctl jobs create has no option --trainng-file (did you mean "
                        "--training-file?)"));
  // Options of dexctl itself stand behind any command.
  EXPECT_THAT(error_of("jobs list --ouptut=json"), HasSubstr("--ouptut (did you mean --output?)"));
  EXPECT_THAT(error_of("jobs frobnicate"),
              AllOf(HasSubstr("no command 'frobnicate'\n"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(error_of("jobs get a b"),
              HasSubstr("dexctl jobs get takes no more arguments, got 'b'"));
}

TEST(CommandLineTest, WhatIsMissingIsNamedAsBefore) {
  EXPECT_THAT(error_of("jobs get"), HasSubstr("id is required"));
  EXPECT_THAT(error_of("compare a b"), HasSubstr("--prompt or --message is required"));
  EXPECT_THAT(error_of("compare a --prompt x"), HasSubstr("models"));
  EXPECT_THAT(error_of("jobs list --output yaml"), HasSubstr("yaml"));
}

TEST(CommandLineTest, TheNamesOfTheDesignReachTheSameCommands) {
  for (const char* words : {"eval list", "complete m --prompt x", "chat"}) {
    CommandLine line;
    line.app.parse(words);
    EXPECT_TRUE(line.action) << words;
  }
}

TEST(DidYouMeanTest, NamesOnlyWhatIsNear) {
  const std::vector<std::string> known = {"smollm2-135m-instruct", "tiny"};
  EXPECT_EQ(did_you_mean("smollm2-135m-instuct", known), " (did you mean smollm2-135m-instruct?)");
  EXPECT_EQ(did_you_mean("tiny", known), "") << "it is there";
  EXPECT_EQ(did_you_mean("gpt-4", known), "");
  EXPECT_EQ(did_you_mean("tiny", {}), "");
}

TEST(ManPageTest, HasEveryCommandOptionAndExitCode) {
  const CommandLine line;
  const std::string page = man_page(line.app, "1.2.3");
  EXPECT_THAT(page, HasSubstr(".TH DEXCTL 1 \"\" \"dexctl 1.2.3\""));
  for_commands(line.app, "dexctl", [&](const CLI::App& command, const std::string& name) {
    EXPECT_THAT(page, HasSubstr("\n.SS " + name + "\n"));
    for (const CLI::Option* option : command.get_options()) {
      for (std::string option_name : option->get_lnames()) {
        for (size_t at = 0; (at = option_name.find('-', at)) != std::string::npos; at += 2)
          option_name.insert(at, "\\");
        if (option != command.get_help_ptr()) {
          EXPECT_THAT(page, HasSubstr("\\fB\\-\\-" + option_name + "\\fR")) << name;
        }
      }
    }
  });
  for (const char* code : {"0", "1", "2", "3", "4", "5", "6", "7", "130"})
    EXPECT_THAT(page, HasSubstr(".TP\n\\fB" + std::string(code) + "\\fR\n"));
  EXPECT_EQ(page, man_page(line.app, "1.2.3"));
}

// A line that begins with a dot or a quote is a request to groff: only those that are meant.
TEST(ManPageTest, NoTextIsTakenForARequest) {
  CLI::App app("x");
  auto* verb = app.add_subcommand("do", "first\n.br is text, so is\n'this, and back\\slash");
  verb->footer("Example:\n  dexctl do .\n");
  std::istringstream lines(man_page(app, "0"));
  const std::set<std::string> requests = {".\\\"", ".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi"};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(".")) {
      EXPECT_TRUE(requests.contains(line.substr(0, line.find(' ')))) << line;
    }
    EXPECT_FALSE(line.starts_with("'")) << line;
  }
  EXPECT_THAT(man_page(app, "0"), AllOf(HasSubstr("\n\\&.br is text"), HasSubstr("back\\eslash")));
}

}  // namespace
}  // namespace dex::cli
