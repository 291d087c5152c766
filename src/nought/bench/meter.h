// Kernels that keep what each operation took and did, for the breakdown of a step.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "nought/kernels/work.h"

namespace nought {

/// All runs of operations of one name since the last take().
struct Metered {
  int64_t runs = 0;
  double seconds = 0;
  Work work = {};
};

/// Runs `inner` and keeps the books: a product's name tells its shape. One thread uses it.
class Meter final : public Kernels {
 public:
  explicit Meter(std::shared_ptr<Kernels> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op) void run(const Op& op, Stream& stream) override;
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

  /// By name: "MatMul 4096 x 768 x 3072", "LayerNorm".
  std::map<std::string, Metered> take();

 private:
  std::shared_ptr<Kernels> inner_;
  std::map<std::string, Metered> books_;
};

}  // namespace nought
