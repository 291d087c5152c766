#include "nought/observe/progress.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/observe/profile.h"
#include "nought/plan/table.h"

namespace nought {

namespace {
constexpr size_t kRecentSteps = 20;

/// "busiest expert 1.31x  dropped 0.4%  ": how far experts are from equal loads; nothing without experts.
std::string balance_of(const RouterLoads& experts) {
  if (experts.empty()) return {};
  std::string text = fmt::format("busiest expert {:.2f}x  ", experts.imbalance());
  if (experts.dropped > 0) text += fmt::format("dropped {:.1f}%  ", 100 * experts.dropped / experts.choices());
  return text;
}

std::string breakdown_line(const StepBreakdown& times) {
  const auto seconds = [](double value) { return fmt::format("{:.4g} ms", 1e3 * value); };
  return fmt::format("forward {}  backward {}  optimizer {}  communication {}, {:.0f}% of it hidden",
                     seconds(times.forward), seconds(times.backward), seconds(times.optimizer),
                     seconds(times.communication), 100 * times.hidden());
}

std::string memory_line(const PhaseMemory& memory) {
  return fmt::format("alive after forward {}, backward {}, update {}", format_bytes(memory.forward),
                     format_bytes(memory.backward), format_bytes(memory.update));
}

std::string profile_lines(const StepProfile& profile) {
  const std::string& file = profile.options.output_file;
  return file.empty() ? fmt::format("\n{}", to_text(profile))
                      : fmt::format("profile of step {} in {}", profile.step, file);
}

/// On one line, whatever the text holds.
std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

/// "comm    all_gather 1.50 MiB in 0.131 ms, 11.2 GiB/s"
std::string collective_line(const TraceEvent& collective) {
  const auto rate = static_cast<int64_t>(static_cast<double>(collective.bytes) / std::max(collective.seconds(), 1e-9));
  return fmt::format("comm    {} {} in {:.3f} ms, {}/s", collective.name, format_bytes(collective.bytes),
                     1e3 * collective.seconds(), format_bytes(rate));
}
}  // namespace

void ProgressPrinter::on_start(const RunSummary& summary) {
  max_steps_ = summary.max_steps;
  first_step_ = summary.first_step;
  for (const std::string& note : summary.notes) line_.print("note: " + note);
  line_.print(fmt::format("model   {} with {} parameters in {}{}, from {}", summary.family,
                          format_count(static_cast<double>(summary.parameters)), summary.dtype,
                          trained_text(summary.parameters, summary.frozen), summary.start));
  line_.print(fmt::format("data    {} tokens, {} samples; {} tokens per step",
                          format_count(static_cast<double>(summary.train_tokens)), summary.samples,
                          summary.tokens_per_step));
  line_.print(fmt::format("layout  {} rank{}, ZeRO stage {}", summary.world_size, summary.world_size == 1 ? "" : "s",
                          summary.zero_stage));
  peak_flops_ = summary.peak_flops;
  line_.print(fmt::format(
      "speed   {} per token (6 Psi + 6 L h s{}); 100% MFU is {}: {}", format_rate(summary.flops_per_token, "FLOP"),
      summary.frozen > 0 ? ", less what is frozen" : "", format_rate(summary.peak_flops, "FLOP/s"), summary.peak_name));
  if (first_step_ > 0) line_.print(fmt::format("resume  after step {}", first_step_));
}

void ProgressPrinter::on_step(const StepReport& report) {
  for (const TraceEvent& collective : report.collectives) line_.print(collective_line(collective));
  trained_seconds_ += report.seconds;
  recent_seconds_.push_back(report.seconds);
  if (recent_seconds_.size() > kRecentSteps) recent_seconds_.pop_front();
  if (!report.nonfinite.empty())
    line_.print(fmt::format("{}: the update is skipped ({} so far)", report.nonfinite, report.skipped_so_far));
  else if (report.skipped)
    line_.print(fmt::format(
        "step {:>5}/{}  OVERFLOW at loss scale {:g}: the update is skipped ({} so far), the scale is {:g} now",
        report.step, max_steps_, report.loss_scale, report.skipped_so_far, report.next_loss_scale));
  const bool stays = report.step % logging_steps_ == 0 || report.step == max_steps_ || report.step == first_step_ + 1 ||
                     report.profile;
  if (!stays && !line_.live()) return;
  if (report.peak_flops > peak_flops_) {
    peak_flops_ = report.peak_flops;
    line_.print(fmt::format("speed   the machine got faster: 100% MFU is {} now", format_rate(peak_flops_, "FLOP/s")));
  }
  const double mean = std::accumulate(recent_seconds_.begin(), recent_seconds_.end(), 0.0) /
                      static_cast<double>(recent_seconds_.size());
  const std::string line =
      fmt::format("step {:>5}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {}{:>6} tok/s  MFU {:4.1f}%  ETA {}",
                  report.step, max_steps_, report.loss, report.grad_norm, report.lr, balance_of(report.experts),
                  format_count(std::round(report.tokens_per_second)), 100 * report.mfu,
                  format_duration(mean * static_cast<double>(max_steps_ - report.step)));
  stays ? line_.print(line) : line_.show(line);
  if (stays && report.breakdown) line_.print("      " + breakdown_line(*report.breakdown));
  if (stays && report.memory) line_.print("      " + memory_line(*report.memory));
  if (report.profile) line_.print(profile_lines(*report.profile));
}

void ProgressPrinter::on_checkpoint(const std::filesystem::path& path) { line_.print("saved   " + path.string()); }

void ProgressPrinter::on_validation(int64_t step, const Evaluation& evaluation) {
  line_.print(fmt::format("step {:>5}/{}  validation loss {:.4f}  {}", step, max_steps_, evaluation.loss,
                          describe(evaluation)));
}

void ProgressPrinter::on_sample(int64_t step, const std::string& prompt, const std::string& text) {
  line_.print(fmt::format("step {:>5}/{}  sample  {} -> {}", step, max_steps_, quoted(prompt), quoted(text)));
}

void ProgressPrinter::on_interrupt(int64_t step, const std::filesystem::path& checkpoint) {
  line_.print(fmt::format("interrupted after step {}; saved {}; continue with --resume", step, checkpoint.string()));
}

void ProgressPrinter::on_best(const BestModel& best, const std::filesystem::path& checkpoint) {
  line_.print(fmt::format("best    {} with {}: its weights are exported", checkpoint.string(), best.str()));
}

std::string describe(const Evaluation& evaluation) {
  std::string text =
      fmt::format("perplexity {:.4g}  {:.4f} bits per token", evaluation.perplexity(), evaluation.bits_per_token());
  if (evaluation.text_bytes > 0) text += fmt::format("  {:.4f} bits per byte", evaluation.bits_per_byte());
  return text;
}

void ProgressPrinter::on_collectives(const std::vector<CollectiveTotal>& totals) {
  line_.print(fmt::format("\n{:<16} {:>10} {:>8} {:>12} {:>12} {:>14}", "collective", "size", "calls", "total", "mean",
                          "rate"));
  for (const CollectiveTotal& total : totals) {
    const double mean = total.seconds / static_cast<double>(total.calls);
    const auto rate = static_cast<int64_t>(static_cast<double>(total.bytes) / std::max(mean, 1e-9));
    line_.print(fmt::format("{:<16} {:>10} {:>8} {:>9.1f} ms {:>9.3f} ms {:>12}/s", total.name,
                            format_bytes(total.bytes), total.calls, 1e3 * total.seconds, 1e3 * mean,
                            format_bytes(rate)));
  }
}

void ProgressPrinter::on_finish(const std::vector<RankMemory>& memory, const std::filesystem::path& exported) {
  line_.print(fmt::format("wrote   {} (Hugging Face config.json and safetensors)", exported.string()));
  line_.print(fmt::format("trained {} step{} in {}", max_steps_ - first_step_, max_steps_ - first_step_ == 1 ? "" : "s",
                          format_duration(trained_seconds_)));
  line_.print("\npeak memory by category\n" + memory_table(predicted_, memory));
}

}  // namespace nought
