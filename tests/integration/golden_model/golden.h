#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dex::golden {

// The imported test model (deploy/setup), and a file of tests/data/golden that was made with it.
// Throws when the file was made with other weights, naming the script to run.
std::filesystem::path model_folder();
nlohmann::json read(const std::string& file);

// prompt + greedy of a case of model.json.
std::vector<int64_t> tokens_of(const nlohmann::json& model_case);

// "1,2,3", as dex-engine takes ids.
std::string joined(const std::vector<int64_t>& ids);

// What `build/bin/dex-engine arguments…` prints. Throws with its error output when it fails or
// takes over a minute.
std::string run_engine(const std::vector<std::string>& arguments);

// Largest |a − b|; infinity where the lengths differ.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace dex::golden
