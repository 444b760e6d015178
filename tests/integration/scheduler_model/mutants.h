#pragma once

#include <string>
#include <vector>

#include "scheduler/store/script.h"

namespace dex::model {

// A fault that somebody could write: each text of a script, replaced. The model test must notice
// every one (jobs.md §14).
struct Edit {
  std::string text, replacement;
};
struct Mutant {
  std::string name;
  std::string script;  // of scheduler/store/lua; "lib": the part that all of them share
  std::vector<Edit> edits;
};
const std::vector<Mutant>& mutants();

// The store's scripts with the fault in. Throws std::runtime_error when a text does not stand
// exactly once in its script: then the script has changed, and the mutant must follow.
std::vector<store::Script> scripts_with(const Mutant& mutant);

}  // namespace dex::model
