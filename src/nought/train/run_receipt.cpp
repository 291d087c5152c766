#include "nought/train/run_receipt.h"

#include <span>
#include <utility>

#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/weight_hash.h"
#include "nought/io/sha256.h"
#include "nought/kernels/ops/wire.h"
#include "nought/weights/foreign_states.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// What the run's plan says, without the reasons.
OrderedJson settings_of(const RunPlan& plan) {
  OrderedJson config = OrderedJson::object();
  for (const Resolved& row : plan.resolved) config[row.key] = row.value;
  return config;
}

/// What kOtherRanksKey says of the run (docs/receipts.md).
OrderedJson other_ranks_of(const RunPlan& plan) {
  constexpr double kMarginOfF32 = 1e-4, kMarginOf16Bits = 2e-2;
  const ShardingOptions& sharding = plan.layout.sharding;
  const int gradient_bits = sharding.codes.gradient_bits;
  if (sharding.virtual_ranks > 0) return 0;
  // What is rounded together, or left out together, depends on how ranks share it.
  if (sharding.codes.weight_bits > 0) return "zero_quantized_weights";
  if (gradient_bits > 0 && has_wire_scales(gradient_bits)) return "zero_quantized_gradients";
  if (sharding.power_sgd) return "ddp_comm_hook";
  if (compresses(sharding.optimizer.method)) return "the optimizer, which compresses what each rank sends";
  if (plan.layout.fp8.scaling != Fp8Scaling::none) return "fp8";
  if (plan.moe_capacity_factor > 0) return "moe_capacity_factor";
  if (plan.moe_quantized_dispatch) return "moe_quantized_dispatch";
  const bool narrow = sharding.dtype != DType::f32 || sharding.gradient_dtype != DType::f32 ||
                      sharding.wire() != DType::f32 || gradient_bits == 16;
  return narrow ? kMarginOf16Bits : kMarginOfF32;
}

/// A batch of one row at a time, whatever the layout.
BatchLayout rows_of_all(const Layout& layout) {
  return {.micro_batch = 1, .accumulation = layout.train_batch(), .world_size = 1, .rank = 0};
}

/// The hash that a checkpoint holds; "" if it has none.
std::string link_in(const fs::path& checkpoint) {
  if (checkpoint.empty() || holds_foreign_run(checkpoint)) return "";
  const Json about = read_checkpoint_info(checkpoint).about;
  return about.is_object() ? about.value(kReceiptKey, "") : "";
}

void add_tensor(Sha256& hash, const Tensor& tensor) {
  hash.add(std::span(tensor.raw(), static_cast<size_t>(tensor.bytes())));
}

}  // namespace

RunReceipt::RunReceipt(const RunPlan& plan, const RunData& data, ShardedModel& model, bool with_frozen)
    : plan_(plan), model_(model), with_frozen_(with_frozen), first_(model.mesh().world().rank() == 0) {
  if (first_ && !data.pairs) samples_.emplace(data.training, rows_of_all(plan.layout), plan.seed);
}

void RunReceipt::begin(int64_t step, const Json& run, const Json& files, const fs::path& checkpoint) {
  OrderedJson line{{"format", kReceiptFormat.str()}, {"kind", "start"}, {"step", step}};
  if (first_) {
    const std::string link = link_in(checkpoint);
    if (checkpoint.empty()) fs::remove(fs::path(plan_.output_dir) / kReceiptFile);  // an earlier run left it
    writer_.emplace(plan_.output_dir, link);
    line["continues"] = link;
    line["program"] = plan_.program;
    line["ranks"] = model_.mesh().world().size();
    line[kOtherRanksKey] = other_ranks_of(plan_);
    line["config"] = settings_of(plan_);
    line["run"] = run;
    line["files"] = files;
  }
  add(std::move(line));
}

bool RunReceipt::after_step(const StepReport& report) {
  made_ = report.step, loss_ = report.loss, grad_norm_ = report.grad_norm;
  const bool due = report.step % plan_.receipt_every == 0;
  if (due) add_step();
  return due;
}

std::string RunReceipt::line_of(int64_t step) {
  if (written_ != step) add_step();
  return first_ ? writer_->last() : "";
}

void RunReceipt::add_step() {
  OrderedJson line{{"kind", "step"}, {"step", made_}};
  if (first_) {
    line["loss"] = loss_;
    line["grad_norm"] = grad_norm_;
    if (samples_) line["samples"] = hash_samples(made_);
  }
  add(std::move(line));
}

void RunReceipt::add(OrderedJson line) {
  written_ = line["step"].get<int64_t>();
  line["weights"] = hash_weights(model_, with_frozen_);
  if (first_) writer_->add(std::move(line));
}

std::string RunReceipt::hash_samples(int64_t step) const {
  Sha256 hash;
  for (int64_t row = 0; row < plan_.layout.train_batch(); ++row) {
    const Batch batch = samples_->batch(step - 1, row, *model_.context().memory);
    add_tensor(hash, batch.input_ids), add_tensor(hash, batch.targets);
  }
  return hash.hex();
}

}  // namespace nought
