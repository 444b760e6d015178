#include "scheduler/core/resolve_form.h"

#include "scheduler/core/dex_shape.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;

bool by_user(const Sources& sources, const std::string& path) {
  const auto found = sources.find(path);
  return found != sources.end() && found->second == "USER";
}

// method.md §3.1, column "default sign".
DexMethod::Sign default_sign(DexMethod::Form form) {
  const bool minus = form == DexMethod::FORM_PAPER || form == DexMethod::FORM_UNIFORM_MAP;
  return minus ? DexMethod::SIGN_MINUS : DexMethod::SIGN_PLUS;
}

void resolve_dense(DexMethod& dex, Sources& sources, std::vector<Problem>& problems,
                   std::vector<std::string>& warnings) {
  const bool form = dex.form() == DexMethod::FORM_DENSE;
  const bool mean =
      dex.form() == DexMethod::FORM_HEAD_MEAN && dex.projection() == DexMethod::PROJECTION_DENSE;
  if (!form && !mean) return;
  const std::string what = form ? "form DENSE" : "form HEAD_MEAN with projection DENSE";
  if (form && by_user(sources, "dex.projection") &&
      dex.projection() != DexMethod::PROJECTION_DENSE) {
    problems.push_back({"CONFLICTING_FIELDS", "dex.projection",
                        "must be DENSE with form DENSE, got " +
                            DexMethod::Projection_Name(dex.projection()).substr(11)});
  }
  if (by_user(sources, "dex.sign") && dex.sign() != DexMethod::SIGN_PLUS) {
    problems.push_back(
        {"CONFLICTING_FIELDS", "dex.sign",
         "is PLUS with " + what + "; for MINUS give form PAPER with projection DENSE"});
  }
  // P(O) − mean = O·(w_d − M) is again a dense map, so its mean term would say nothing of its own.
  dex.set_form(DexMethod::FORM_PAPER);
  dex.set_projection(DexMethod::PROJECTION_DENSE);
  dex.set_sign(DexMethod::SIGN_PLUS);
  for (const char* path : {"dex.form", "dex.projection", "dex.sign"}) sources[path] = "AUTO";
  warnings.push_back("form_resolved: " + what + " is form PAPER, projection DENSE, sign PLUS");
}

}  // namespace

std::vector<Problem> resolve_form(DexMethod& dex, Sources& sources,
                                  std::vector<std::string>& warnings) {
  std::vector<Problem> problems;
  if (by_user(sources, "dex.form") && !by_user(sources, "dex.sign") &&
      dex.sign() != default_sign(dex.form())) {
    dex.set_sign(default_sign(dex.form()));
    sources["dex.sign"] = "AUTO";
  }
  resolve_dense(dex, sources, problems, warnings);
  const bool linear = dex.w_d_init() == DexMethod::BRANCH_INIT_LINEAR;
  if (dex.start() != DexMethod::START_LITERAL || linear || !has_map(dex)) return problems;
  if (by_user(sources, "dex.w_d_init")) {
    problems.push_back({"CONFLICTING_FIELDS", "dex.w_d_init",
                        "is LINEAR with start LITERAL; leave it out, or give start IDENTITY"});
  }
  dex.set_w_d_init(DexMethod::BRANCH_INIT_LINEAR);
  sources["dex.w_d_init"] = "AUTO";
  return problems;
}

}  // namespace dex::core
