// A batch that knows what enters a layer gives what the whole model gives, bit for bit.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/unit/worker/model/models.h"
#include "worker/model/llama.h"

namespace dex::model {
namespace {

// What was computed once, at its construction.
class Kept final : public FrozenPrefix {
 public:
  Kept(const Llama& llama, int64_t layers, const Batch& batch)
      : layers_(layers), entering_(llama.entering(layers, batch)) {}
  [[nodiscard]] int64_t layers() const override { return layers_; }
  [[nodiscard]] at::Tensor entering(const Batch&) const override {
    ++asked;
    return entering_.clone();
  }
  mutable int asked = 0;

 private:
  int64_t layers_;
  at::Tensor entering_;
};

class FrozenPrefixTest : public ::testing::Test {
 protected:
  // Branch and K, V, O from layer 1 up, gradients wanted.
  Adaptation adaptation() const {
    DexOptions options = testing::all_options()[0];
    options.first_layer = 1;
    Adaptation out = testing::moved_adaptation(options, config, weights);
    for (const Trainable& entry : trainables(out)) {
      *entry.tensor = entry.tensor->detach();
      entry.tensor->requires_grad_(true);
    }
    return out;
  }
  std::string refusal(const Batch& batch, const Adaptation& adaptation,
                      const Observer& observer = {}) const {
    try {
      llama.hidden(batch, adaptation, observer);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }

  Config config = testing::tiny_config();
  Weights weights = testing::tiny_weights(config);
  Llama llama{config, weights};
  Batch whole = pack({{3, 14, 15, 9, 26, 5}, {1, 2, 3}});
};

TEST_F(FrozenPrefixTest, GivesTheSameStatesAndGradients) {
  Batch batch = whole;
  const Kept kept(llama, 1, whole);
  batch.prefix = &kept;
  Adaptation straight = adaptation(), known = adaptation();
  const at::Tensor expected = llama.hidden(whole, straight), found = llama.hidden(batch, known);
  EXPECT_EQ(kept.asked, 1);
  EXPECT_TRUE(found.equal(expected));
  expected.square().sum().backward();
  found.square().sum().backward();
  const auto want = trainables(straight), got = trainables(known);
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const at::Tensor &a = got[i].tensor->grad(), &b = want[i].tensor->grad();
    ASSERT_EQ(a.defined(), b.defined()) << want[i].name;  // none where no head is selected
    if (b.defined()) {
      EXPECT_TRUE(a.equal(b)) << want[i].name;
    }
  }
  EXPECT_TRUE(known.layers[1].k.grad().defined());
  // Of the base too, which has no layer that changes.
  EXPECT_TRUE(llama.hidden(batch).equal(llama.hidden(whole)));
}

TEST_F(FrozenPrefixTest, IsRefusedWhereItWouldLie) {
  Batch batch = whole;
  const Kept kept(llama, 2, whole);
  batch.prefix = &kept;
  EXPECT_EQ(refusal(batch, adaptation()),
            "[llama] the adaptation changes layer 1, below a frozen prefix of 2 layers");
  Observer looks;
  looks.on_heads = [](int64_t, const at::Tensor&, const at::Tensor&, const at::Tensor&) {};
  EXPECT_NE(refusal(batch, {}, looks).find("heads can't be measured"), std::string::npos);
  EXPECT_EQ(kept.asked, 0);
}

TEST_F(FrozenPrefixTest, OfNoLayersIsNone) {
  Batch batch = whole;
  const Kept kept(llama, 0, whole);
  batch.prefix = &kept;
  EXPECT_TRUE(llama.hidden(batch).equal(llama.hidden(whole)));
  EXPECT_EQ(kept.asked, 0);
}

}  // namespace
}  // namespace dex::model
