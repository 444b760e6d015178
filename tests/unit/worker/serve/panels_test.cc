// Linears in panels and, for models that are too large to be copied, in the rows of their file: the
// same model to everybody.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "services/base/clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/worker/serve/collector.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "worker/serve/engine.h"

namespace dex::serve {
namespace {

class PanelsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_one_library_thread(); }
  PanelsTest() {
    train::testing::write_tiny_model(dir.path());
    panels = load_serving_model(dir.path(), Dtype::kAsStored);
    rows = load_serving_model(dir.path(), Dtype::kAsStored, {}, 0, /*panel_bytes=*/0);
    for (int32_t i = 0; i < 50; ++i) ids.push_back((i * i * 7 + i * 3 + 5) % 71);
  }
  static std::vector<float> run(const std::shared_ptr<const ServingModel>& model, Request request,
                                std::shared_ptr<const ServingAdapter> adapter = nullptr) {
    base::SystemClock clock;
    Engine engine(model, nullptr, {.threads = 2}, clock);
    auto out = std::make_shared<testing::Collector>();
    EXPECT_TRUE(engine.submit(1, std::move(request), std::move(adapter), out).ok());
    engine.run_until_idle();
    return out->values();
  }

  support::TemporaryDirectory dir;
  std::shared_ptr<const ServingModel> panels, rows;
  std::vector<int32_t> ids;
};

TEST_F(PanelsTest, ALargerModelStaysInItsFile) {
  EXPECT_TRUE(panels->panels);
  EXPECT_TRUE(panels->layers[0].q.panels);
  EXPECT_TRUE(panels->lm_head.panels);
  EXPECT_FALSE(panels->embed.panels);
  EXPECT_FALSE(rows->panels);
  EXPECT_FALSE(rows->layers[0].q.panels);
  EXPECT_FALSE(rows->lm_head.panels);
}

TEST_F(PanelsTest, BothOrdersScoreTheSame) {
  for (const int which : {-1, 0, static_cast<int>(testing::kAllLora)}) {
    std::shared_ptr<const ServingAdapter> in_panels, in_rows;
    if (which >= 0) {
      const auto options = testing::tiny_options().at(static_cast<size_t>(which));
      const auto adapter = testing::tiny_adapter(options, 50, panels->weights_sha256);
      in_panels = make_serving_adapter(adapter, "a", std::string(64, 'a'), *panels);
      in_rows = make_serving_adapter(adapter, "a", std::string(64, 'a'), *rows);
    }
    const auto got = run(panels, testing::scoring(ids), in_panels),
               want = run(rows, testing::scoring(ids), in_rows);
    ASSERT_EQ(got.size(), ids.size() - 1);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4) << which;
  }
}

// In panels every sum has one order: a prompt and a reply of the same tokens are equal bits.
TEST_F(PanelsTest, DecodingSaysWhatPrefillSays) {
  base::SystemClock clock;
  Engine engine(panels, nullptr, {.threads = 1}, clock);
  auto made = std::make_shared<testing::Collector>();
  ASSERT_TRUE(engine.submit(1, testing::greedy(ids, 20), nullptr, made).ok());
  engine.run_until_idle();
  auto all = ids;
  all.insert(all.end(), made->tokens.begin(), made->tokens.end());
  const auto whole = run(panels, testing::scoring(all)), decoded = made->values();
  ASSERT_EQ(decoded.size(), 20U);
  EXPECT_EQ(decoded, std::vector<float>(whole.end() - 20, whole.end()));
}

}  // namespace
}  // namespace dex::serve
