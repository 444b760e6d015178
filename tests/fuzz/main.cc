// The driver of a fuzz target where libFuzzer is not: a bounded run in a process of its own, as a
// test. Prints what came of it; exit code 1 when an input was too much for the parser.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/mutations.h"
#include "tests/fuzz/run.h"
#include "tests/support/figures.h"
#include "tests/support/long_form.h"

namespace dex::fuzz {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string program, name;
  RunOptions run;
  std::vector<std::string> replay;
  std::string corpus_folder;
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + " can't be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return fs::absolute(path);
}

int replay(const Arguments& arguments) {
  int faults = 0;
  for (const std::string& file : arguments.replay) {
    const std::string ending = run_one(LLVMFuzzerTestOneInput, content_of(file), arguments.run);
    std::printf("%s: %s\n", file.c_str(), ending.empty() ? "ended well" : ending.c_str());
    faults += ending.empty() ? 0 : 1;
  }
  return faults == 0 ? 0 : 1;
}

int write_corpus(const Arguments& arguments) {
  fs::create_directories(arguments.corpus_folder);
  const Corpus made = corpus();
  for (size_t i = 0; i < made.seeds.size(); ++i)
    write(fs::path(arguments.corpus_folder) / ("seed-" + std::to_string(i)), made.seeds[i]);
  std::printf("%zu inputs in %s\n", made.seeds.size(), arguments.corpus_folder.c_str());
  return 0;
}

// Keeps the input that ended the run, in the folder that ctest starts this in.
int tell_fault(const Arguments& arguments, const Corpus& made, const Outcome& outcome) {
  const std::string input = input_of(made, arguments.run.seed, outcome.index);
  const std::string alone = run_one(LLVMFuzzerTestOneInput, input, arguments.run);
  const fs::path kept =
      write(arguments.name + "-" + std::to_string(outcome.index) + ".input", input);
  std::printf("%s: input %llu of seed %llu (%zu bytes) %s\n", arguments.name.c_str(),
              static_cast<unsigned long long>(outcome.index),
              static_cast<unsigned long long>(arguments.run.seed), input.size(),
              outcome.failure.c_str());
  std::printf("  it is kept; again: %s --replay %s\n", arguments.program.c_str(), kept.c_str());
  if (alone.empty())
    std::printf(
        "  alone it ends well: something was left by the inputs before; again with them: "
        "%s --seed %llu --count %llu\n",
        arguments.program.c_str(), static_cast<unsigned long long>(arguments.run.seed),
        static_cast<unsigned long long>(outcome.index + 1));
  return 1;
}

int fuzz(const Arguments& arguments) {
  const Corpus made = corpus();
  if (made.seeds.empty()) throw std::runtime_error("the target has no seeds");
  const Outcome outcome = run(LLVMFuzzerTestOneInput, made, arguments.run);
  if (!outcome.failure.empty()) return tell_fault(arguments, made, outcome);
  std::printf("%s: %llu inputs, of which %llu were taken\n", arguments.name.c_str(),
              static_cast<unsigned long long>(outcome.inputs),
              static_cast<unsigned long long>(outcome.taken));
  if (outcome.taken == 0) {
    std::printf(
        "  none of the seeds is what the parser takes, so nothing behind its first check "
        "was tried\n");
    return 1;
  }
  support::figure("P15", "fuzz_inputs", static_cast<double>(outcome.inputs));
  return 0;
}

int main_of(int argc, char** argv) {
  file_with({});  // makes the folder that this process will remove, which its children then use
  Arguments arguments;
  arguments.program = fs::absolute(argv[0]).lexically_normal();
  arguments.name = fs::path(argv[0]).filename();
  if (support::long_form()) {
    arguments.run.count = 1'000'000;
    arguments.run.seconds = 600;
  }
  CLI::App app("Gives one parser well-formed inputs, and many that are nearly so.");
  app.add_option("--seed", arguments.run.seed, "of the changes; other seeds make other inputs");
  auto* count = app.add_option("--count", arguments.run.count, "inputs, however long they take");
  app.add_option("--replay", arguments.replay, "files with an input each, and nothing else");
  app.add_option("--write-corpus", arguments.corpus_folder, "only writes the seeds, for libFuzzer");
  CLI11_PARSE(app, argc, argv);
  if (count->count() > 0) arguments.run.seconds = 1e9;
  if (!arguments.corpus_folder.empty()) return write_corpus(arguments);
  return arguments.replay.empty() ? fuzz(arguments) : replay(arguments);
}

}  // namespace
}  // namespace dex::fuzz

int main(int argc, char** argv) {
  try {
    return dex::fuzz::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
