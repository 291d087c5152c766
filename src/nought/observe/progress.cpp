#include "nought/observe/progress.h"

#include <algorithm>
#include <numeric>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/observe/profile.h"
#include "nought/plan/table.h"
#include "nought/train/run_data.h"
#include "nought/weights/adapter_files.h"

namespace nought {

namespace {
std::string short_time(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

std::string memory_line(const PhaseMemory& memory) {
  return fmt::format("memory in use after forward {}, backward {}, update {}", format_bytes(memory.forward),
                     format_bytes(memory.backward), format_bytes(memory.update));
}

std::string profile_lines(const StepProfile& profile, int width) {
  const std::string& file = profile.options.output_file;
  return file.empty() ? fmt::format("\n{}", to_text(profile, width))
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

std::string breakdown_line(const StepBreakdown& times, int width) {
  constexpr int kIndent = 6;
  std::vector<Field> fields{
      {"forward " + short_time(times.forward), 0},
      {"backward " + short_time(times.backward), 0},
      {"optimizer " + short_time(times.optimizer), 2},
      {fmt::format("communication {}, {:.0f}% of it hidden", short_time(times.communication), 100 * times.hidden()),
       1}};
  if (times.offload > 0)
    fields.push_back(
        {fmt::format("offload {}, {:.0f}% of it hidden", short_time(times.offload), 100 * times.offload_hidden()), 1});
  return std::string(kIndent, ' ') + fit_fields(fields, width > 0 ? std::max(width - kIndent, 1) : 0);
}

namespace {
/// What a line calls a metric of answers; "": it has no room for it.
std::string_view short_name(std::string_view metric) {
  return metric == "rewards/accuracies" ? "accuracy"
         : metric == "rewards/margins"  ? "margin"
         : metric == "reward"           ? metric
                                        : "";
}
}  // namespace

std::string step_line(const StepReport& report, int64_t max_steps, double seconds_left, int width) {
  const RouterLoads& experts = report.experts;
  std::vector<Field> fields{{fmt::format("step {:>5}/{}", report.step, max_steps), 0},
                            {fmt::format("loss {:.4f}", report.loss), 1},
                            {fmt::format("grad norm {:.3f}", report.grad_norm), 4},
                            {fmt::format("lr {:.2e}", report.lr), 8}};
  if (!experts.empty()) {  // how far experts are from equal loads
    fields.push_back({fmt::format("busiest expert {:.2f}x", experts.imbalance()), 5});
    if (experts.dropped > 0)
      fields.push_back({fmt::format("dropped {:.1f}%", 100 * experts.dropped / experts.choices()), 6});
  }
  for (const auto& [name, value] : report.of_answers)
    if (const std::string_view shown = short_name(name); !shown.empty())
      fields.push_back({fmt::format("{} {:.3f}", shown, value), 5});
  if (report.staleness)
    fields.push_back({fmt::format("stale {:.1f} (most {})", report.staleness->mean(), report.staleness->most()), 6});
  fields.push_back({fmt::format("{:>15}", format_token_rate(report.tokens_per_second)), 3});
  fields.push_back({fmt::format("MFU {:4.1f}%", 100 * report.mfu), 7});
  fields.push_back({fmt::format("ETA {}", seconds_left < 0 ? "-" : format_duration(seconds_left)), 2});
  return fit_fields(std::move(fields), width);
}

void ProgressPrinter::on_start(const RunSummary& summary) {
  max_steps_ = summary.max_steps;
  first_step_ = summary.first_step;
  for (const std::string& line : summary.notes) note(line);
  say(fmt::format("model   {} with {} parameters in {}{}, from {}", summary.family,
                  format_count(static_cast<double>(summary.parameters)), summary.dtype,
                  trained_text(summary.parameters, summary.frozen), summary.start));
  say(fmt::format("data    {}, {} samples; {} tokens per step",
                  describe_tokens(summary.train_tokens, summary.targets, summary.tokenizer), summary.samples,
                  summary.tokens_per_step));
  say(fmt::format("layout  {} rank{}, ZeRO stage {}", summary.world_size, summary.world_size == 1 ? "" : "s",
                  summary.zero_stage));
  for (size_t i = 0; i < summary.mesh.size(); ++i) say(fmt::format("{:<8}{}", i == 0 ? "mesh" : "", summary.mesh[i]));
  peak_flops_ = summary.peak_flops;
  const std::string peak =
      summary.peak_flops > 0
          ? fmt::format("100% MFU is {}: {}", format_rate(summary.peak_flops, "FLOP/s"), summary.peak_name)
          : "no MFU: the peak of the device is not known";
  say(fmt::format("speed   {} per token, forward and backward{}; {}", format_rate(summary.flops_per_token, "FLOP"),
                  summary.frozen > 0 ? ", less what is frozen" : "", peak));
  const bool is_over = first_step_ > 0 && first_step_ >= max_steps_;
  if (first_step_ > 0)
    say(fmt::format("resume  after step {}{}", first_step_,
                    is_over ? ", the last one: --set training.max_steps=N goes on to step N" : ""));
}

void ProgressPrinter::on_step(const StepReport& report) {
  for (const TraceEvent& collective : report.collectives) say(collective_line(collective));
  seconds_.push_back(report.seconds);
  pace_.add_step(report.seconds);
  if (report.breakdown) {
    const StepBreakdown& times = *report.breakdown;
    measured_.communication += times.communication, measured_.exposed += times.exposed;
    measured_.offload += times.offload, measured_.offload_exposed += times.offload_exposed;
  }
  if (!report.nonfinite.empty())
    say(fmt::format("{}: the update is skipped ({} so far)", report.nonfinite, report.skipped_so_far));
  else if (report.skipped)
    say(fmt::format(
        "step {:>5}/{}  OVERFLOW at loss scale {:g}: the update is skipped ({} so far), the scale is {:g} now",
        report.step, max_steps_, report.loss_scale, report.skipped_so_far, report.next_loss_scale));
  if (!report.spike.empty()) say("spike   " + report.spike);
  if (!report.guess.empty()) say("update  " + report.guess);
  if (report.ranks && !report.ranks->warning.empty()) say("slow    " + report.ranks->warning);
  const bool stays = report.step % logging_steps_ == 0 || report.step == max_steps_ || report.step == first_step_ + 1 ||
                     report.profile;
  if (quiet_ || (!stays && !line_.live())) {
    if (report.profile) line_.print(profile_lines(*report.profile, line_.width()));
    return;
  }
  if (report.peak_flops > peak_flops_) {
    peak_flops_ = report.peak_flops;
    say(fmt::format("speed   the machine got faster: 100% MFU is {} now", format_rate(peak_flops_, "FLOP/s")));
  }
  const int64_t left = max_steps_ - report.step;
  const double seconds_left = pace_.knows() || left == 0 ? pace_.seconds_for(left) : -1;
  const std::string line = step_line(report, max_steps_, seconds_left, line_.width());
  stays ? line_.print(line) : line_.show(line);
  if (stays && report.breakdown) line_.print(breakdown_line(*report.breakdown, line_.width()));
  if (stays && report.memory) say("      " + memory_line(*report.memory));
  if (report.profile) line_.print(profile_lines(*report.profile, line_.width()));
}

void ProgressPrinter::on_checkpoint(const SaveOutcome& saved) { say("saved   " + saved.path.string()); }

void ProgressPrinter::on_failed_save(const SaveOutcome& failed) {
  say(fmt::format("warning: {} was not saved, and the run goes on: {}", failed.path.filename().string(),
                  failed.failure));
}

void ProgressPrinter::on_validation(int64_t step, const Evaluation& evaluation) {
  pace_.add_pause(evaluation.seconds);
  say(fmt::format("step {:>5}/{}  validation loss {:.4f}  {}", step, max_steps_, evaluation.loss,
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
  if (!evaluation.of_answers.empty()) {
    std::string text;
    for (const auto& [name, value] : evaluation.of_answers)
      if (const std::string_view shown = short_name(name); !shown.empty())
        text += fmt::format("{}{} {:.3f}", text.empty() ? "" : "  ", shown, value);
    return text;
  }
  std::string text =
      fmt::format("perplexity {:.4g}  {:.4f} bits per token", evaluation.perplexity(), evaluation.bits_per_token());
  if (evaluation.text_bytes > 0) text += fmt::format("  {:.4f} bits per byte", evaluation.bits_per_byte());
  return text;
}

void ProgressPrinter::on_collectives(const std::vector<CollectiveTotal>& totals) {
  Table table{.ranks = {0, 3, 2, 1, 0}, .rows = {{"collective", "size", "calls", "total", "mean", "rate"}}};
  table.name_columns = 16, table.cell_columns = 9;
  for (const CollectiveTotal& total : totals) {
    const double mean = total.seconds / static_cast<double>(total.calls);
    const auto rate = static_cast<int64_t>(static_cast<double>(total.bytes) / std::max(mean, 1e-9));
    table.rows.push_back({total.name, format_bytes(total.bytes), fmt::format("{}", total.calls),
                          fmt::format("{:.1f} ms", 1e3 * total.seconds), fmt::format("{:.3f} ms", 1e3 * mean),
                          format_bytes(rate) + "/s"});
  }
  line_.print("\n" + fit_table(table, line_.width()));
}

void ProgressPrinter::on_finish(const std::vector<RankMemory>& memory, const std::filesystem::path& exported) {
  say(fmt::format("wrote   {} ({})", exported.string(),
                  holds_adapter(exported) ? "an adapter, as peft has it" : "Hugging Face config.json and safetensors"));
  say(fmt::format("trained {} step{} in {}", max_steps_ - first_step_, max_steps_ - first_step_ == 1 ? "" : "s",
                  format_duration(std::accumulate(seconds_.begin(), seconds_.end(), 0.0))));
  if (measured_.communication > 0)
    say(fmt::format("hidden  {:.0f}% of {} of communication", 100 * measured_.hidden(),
                    short_time(measured_.communication)));
  if (measured_.offload > 0)
    say(fmt::format("hidden  {:.0f}% of {} of reads and writes of files", 100 * measured_.offload_hidden(),
                    short_time(measured_.offload)));
  if (!update_order_.empty()) say("hidden  " + update_order_);
  line_.print("\npeak memory by category\n" + memory_table(predicted_.memory, memory, line_.width()));
  if (!predicted_.assumed.empty()) say(predicted_.assumed);
  if (predicted_.seconds == 0 || seconds_.empty()) return;
  std::sort(seconds_.begin(), seconds_.end());
  const auto at = [&](size_t quarter) { return seconds_[quarter * (seconds_.size() - 1) / 4]; };
  say(fmt::format("step    {} predicted, {} measured (median; half of the steps {} to {}){}",
                  predicted_.step.empty() ? short_time(predicted_.seconds) : predicted_.step, short_time(at(2)),
                  short_time(at(1)), short_time(at(3)),
                  predicted_.busy ? "; the machine was busy while it was predicted" : ""));
}

}  // namespace nought
