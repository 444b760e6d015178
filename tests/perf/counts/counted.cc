#include "tests/perf/counts/counted.h"

#include <hwy/targets.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "services/base/frame_channel.h"
#include "services/gateway/http/sse.h"
#include "services/text/tokenizer.h"
#include "worker/kernels/linear.h"
#include "worker/serve/batcher.h"
#include "worker/serve/block_manager.h"
#include "worker/serve/sampler.h"

namespace dex::perf {
namespace {

using Work = std::function<void()>;

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// The kernels' instruction set, whatever this processor has.
void fix_instruction_set() {
  require((hwy::SupportedTargets() & HWY_AVX2) != 0, "this processor has no AVX2");
  hwy::SetSupportedTargetsForTest(HWY_AVX2);
}

// Even spread in [−1, 1), without a library's generator.
std::vector<float> numbers(size_t count) {
  uint32_t state = 1;
  std::vector<float> out(count);
  for (float& value : out) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / static_cast<float>(1U << 23) - 1.0F;
  }
  return out;
}

// Prompts of 100 tokens, a third of which begin alike, that are given room, published and let go.
Work block_manager() {
  auto blocks = std::make_shared<serve::BlockManager>(serve::BlockManager::Options{512, 16});
  return [blocks] {
    std::vector<serve::BlockManager::Lease> leases;
    for (int32_t n = 0; n < 200; ++n) {
      std::vector<int32_t> tokens(100);
      std::iota(tokens.begin(), tokens.end(), n % 3 == 0 ? 0 : n * 100);
      tokens.back() = n;
      auto lease = blocks->acquire(static_cast<uint64_t>(n % 2), tokens);
      require(lease.has_value(), "no blocks");
      blocks->publish(*lease, tokens, 100);
      require(blocks->extend(*lease, 130), "no room");
      leases.push_back(std::move(*lease));
      if (leases.size() == 16) {
        for (auto& old : leases) blocks->release(std::move(old));
        leases.clear();
      }
    }
    for (auto& old : leases) blocks->release(std::move(old));
  };
}

// 48 requests of 96 tokens that each get 32 more, 32 at a time.
Work batcher() {
  return [] {
    serve::BlockManager blocks({1024, 16});
    serve::Batcher batcher({}, blocks);
    std::vector<serve::Schedulable> all(48);
    for (size_t n = 0; n < all.size(); ++n) {
      all[n].tokens.assign(96, static_cast<int32_t>(n));
      all[n].prompt_tokens = 96;
      batcher.add(&all[n]);
    }
    for (size_t left = all.size(); left > 0;) {
      const serve::Plan plan = batcher.plan();
      for (const auto* shares : {&plan.decode, &plan.prefill}) {
        for (const serve::Share& share : *shares) {
          const bool ends = share.reaches_end();
          batcher.computed(share);
          if (!ends) continue;
          share.sequence->tokens.push_back(1);
          if (share.sequence->tokens.size() < 96 + 32) continue;
          batcher.remove(share.sequence);
          --left;
        }
      }
    }
  };
}

// 20 tokens of 49,152 logits, by nucleus and with log-probabilities.
Work sampler() {
  fix_instruction_set();
  auto raw = std::make_shared<std::vector<float>>(numbers(49152));
  return [raw] {
    serve::Sampler sampler({.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 7},
                           std::vector<int32_t>{1, 2, 3}, 5);
    for (int i = 0; i < 20; ++i) {
      std::vector<float> logits = *raw;
      require(sampler.choose(logits, {}).finite, "logits are not finite");
    }
  };
}

Work tokenizer(const std::string& model) {
  auto loaded = text::Tokenizer::load(model);
  require(loaded.ok(), "the tokenizer can't be read");
  std::shared_ptr<text::Tokenizer> tokenizer = std::move(loaded).value();
  std::string words;
  for (int i = 0; i < 200; ++i)
    words += "Line " + std::to_string(i * 37) + ": def area(r): return 3.14 * r ** 2  # übrigens\n";
  require(tokenizer->encode("warm", true).ok(), "the tokenizer refuses a word");
  return [tokenizer, words] {
    const auto ids = tokenizer->encode(words, true);
    require(ids.ok() && tokenizer->decode(*ids, true).ok(), "the tokenizer refuses a text");
  };
}

// A thousand frames of a token's size there and back; what the kernel does is not counted.
Work frames() {
  auto pair = base::FrameChannel::pair();
  require(pair.ok(), "no socket pair");
  std::shared_ptr<base::FrameChannel> here = std::move(pair->first);
  auto there = std::make_shared<base::FrameChannel>(std::move(pair->second));
  return [here, there] {
    const std::string frame(200, 'x');
    for (int i = 0; i < 1000; ++i) {
      require(here->write(frame, 1000).ok(), "a frame can't be written");
      require(there->read(1000).ok(), "a frame can't be read");
    }
  };
}

Work sse() {
  return [] {
    size_t bytes = 0;
    const std::string chunk =
        R"({"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" word"}]})";
    for (int i = 0; i < 1000; ++i)
      bytes += gateway::http::to_text({chunk, "", std::to_string(i)}).size();
    require(bytes > 0, "no text");
  };
}

// A slice of SmolLM2's gate projection for one token, in bf16.
Work kernel() {
  fix_instruction_set();
  constexpr int64_t kOutputs = 192, kColumns = 576;
  struct Product {
    std::vector<float> x = numbers(kColumns), y = std::vector<float>(kOutputs);
    std::vector<uint16_t> w = std::vector<uint16_t>(kOutputs * kColumns, 0x3F80);
  };
  auto product = std::make_shared<Product>();
  const auto run = [product] {
    const kernels::WeightView w{product->w.data(), kernels::Number::kBf16, kOutputs, kColumns};
    kernels::linear_few(product->x.data(), kColumns, 1, w, 0, kOutputs, product->y.data(), kOutputs,
                        kernels::Store::kSet);
  };
  run();
  return [run] {
    for (int i = 0; i < 20; ++i) run();
  };
}

}  // namespace

std::map<std::string, Prepare> counted_parts(const std::string& model) {
  return {{"block_manager", block_manager},
          {"batcher", batcher},
          {"sampler", sampler},
          {"tokenizer", [model] { return tokenizer(model); }},
          {"frames", frames},
          {"sse", sse},
          {"kernel_linear_few_bf16_avx2", kernel}};
}

}  // namespace dex::perf
