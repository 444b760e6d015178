#include "worker/evaluate/kept_samples.h"

#include <algorithm>
#include <iterator>

#include "worker/evaluate/random_stream.h"
#include "worker/evaluate/report_text.h"

namespace dex::evaluate {
namespace {

// FNV-1a: which of the draw's streams is a sample's.
uint64_t hash_of(const Sample& sample) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](const std::string& text) {
    for (const char c : text + '\n') hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  };
  add(std::to_string(sample.item));
  for (const auto& [key, value] : sample.dims) {
    add(key);
    add(value);
  }
  return hash;
}

using SampleKey = std::pair<int64_t, Dims>;

}  // namespace

uint32_t KeptSamples::rank_of(const Sample& sample) const {
  constexpr int kIndexBits = 48;  // of a RandomStream
  return RandomStream(seed_, Draw::kKeptSamples, hash_of(sample) >> (64 - kIndexBits)).next();
}

KeptSamples::Subject& KeptSamples::subject_of(const std::string& label) {
  const auto at = std::ranges::find(subjects_, label, &Subject::label);
  if (at != subjects_.end()) return *at;
  subjects_.push_back({.label = label});
  return subjects_.back();
}

void KeptSamples::add(const Sample& sample) {
  Subject& subject = subject_of(sample.subject);
  const std::pair<uint32_t, size_t> place = {rank_of(sample), subject.seen++};
  if (subject.kept.size() == kMost) {
    const auto last = std::prev(subject.kept.end());
    if (last->first < place) return;
    subject.kept.erase(last);
  }
  Sample& kept = subject.kept[place];
  kept = sample;
  kept.prompt = shortened(kept.prompt, kLongestPrompt);
  kept.output = shortened(kept.output, kLongestPrompt);
  kept.expected = shortened(kept.expected, kLongestExpected);
}

std::string KeptSamples::lines() const {
  std::map<SampleKey, double> baseline;
  std::string out;
  for (const Subject& subject : subjects_) {
    const bool first = &subject == subjects_.data();
    std::map<size_t, const Sample*> in_order;
    for (const auto& [place, sample] : subject.kept) in_order[place.second] = &sample;
    for (const auto& [place, kept] : in_order) {
      Sample sample = *kept;
      const SampleKey key = {sample.item, sample.dims};
      if (first) {
        baseline[key] = sample.score;
      } else if (const auto at = baseline.find(key); at != baseline.end()) {
        sample.baseline_score = at->second;
      }
      const std::string line = sample_as_json(sample);
      if (line.size() <= kLongestLine) out += line;
    }
  }
  return out;
}

}  // namespace dex::evaluate
