#include "nought/observe/metrics.h"

#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/base/timing.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {
/// Appends what a resumed run makes again to the file of earlier ones. A run that begins has none.
void keep_discarded(const std::filesystem::path& path, int64_t first_step, const std::string& lines) {
  std::error_code ignored;  // what cannot be removed can hardly be written either, which is told for metrics.jsonl
  if (first_step == 0)
    std::filesystem::remove(path, ignored);
  else if (!lines.empty())
    write_text_atomically(path, bytes_if_there(path).value_or("") + lines);
}
}  // namespace

void MetricsWriter::on_start(const RunSummary& summary) {
  std::string kept, discarded;
  if (summary.first_step > 0) {
    std::istringstream earlier(bytes_if_there(path_).value_or(""));  // IoError: the lines of before are not lost
    for (std::string line; std::getline(earlier, line);) {
      const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      // Steps after the checkpoint are made again; a line that was cut off by a crash is one of them.
      if (!json.is_object()) continue;
      if (json.value("step", summary.max_steps + 1) <= summary.first_step)
        kept += line + "\n";
      else
        discarded += line + "\n";
    }
  }
  keep_discarded(path_.parent_path() / kDiscardedMetricsFile, summary.first_step, discarded);
  file_ = AppendFile(path_, kept);
}

void MetricsWriter::on_step(const StepReport& report) {
  OrderedJson line{{"step", report.step},
                   {"loss", report.loss},
                   {"grad_norm", report.grad_norm},
                   {"lr", report.lr},
                   {"tokens_per_second", report.tokens_per_second},
                   {"mfu", report.mfu},
                   {"bytes_sent", report.bytes_sent},
                   {"time", seconds_since_1970()}};
  for (const auto& [name, value] : report.of_answers) line[name] = value;
  if (report.loss_scale > 0) line["loss_scale"] = report.loss_scale;
  if (report.breakdown) {
    const StepBreakdown& times = *report.breakdown;
    line["seconds"] = report.seconds;
    line["forward_seconds"] = times.forward;
    line["backward_seconds"] = times.backward;
    line["optimizer_seconds"] = times.optimizer;
    line["communication_seconds"] = times.communication;
    line["communication_hidden"] = times.hidden();
    if (times.offload > 0) {
      line["offload_seconds"] = times.offload;
      line["offload_hidden"] = times.offload_hidden();
    }
  }
  if (report.memory) {
    line["forward_bytes"] = report.memory->forward;
    line["backward_bytes"] = report.memory->backward;
    line["update_bytes"] = report.memory->update;
  }
  if (report.ranks) {
    OrderedJson ranks{{"steps", report.ranks->steps}};
    report.ranks->for_each([&](const char* name, const TimeSpread& seconds) {
      ranks[name] = {
          {"min", seconds.min}, {"median", seconds.median}, {"max", seconds.max}, {"slowest_rank", seconds.slowest}};
    });
    line["rank_seconds"] = std::move(ranks);
    if (!report.ranks->warning.empty()) line["straggler"] = report.ranks->warning;
  }
  if (!report.spike.empty()) line["spike"] = report.spike;
  if (const auto& stale = report.staleness)
    line["staleness"] = {{"last", stale->last},
                         {"mean", stale->mean()},
                         {"max", stale->most()},
                         {"steps", stale->histogram},
                         {"waited_seconds", stale->waited}};
  line["skipped"] = report.skipped;
  if (!report.nonfinite.empty()) line["nonfinite"] = report.nonfinite;
  if (!report.experts.empty()) {
    OrderedJson layers = OrderedJson::array();
    for (const std::vector<double>& layer : report.experts.chosen)
      layers.push_back(std::vector<int64_t>(layer.begin(), layer.end()));
    line["expert_load"] = std::move(layers);
    line["expert_imbalance"] = report.experts.imbalance();
    line["expert_dropped"] = static_cast<int64_t>(report.experts.dropped);
  }
  write(line.dump());
}

void MetricsWriter::on_checkpoint(const SaveOutcome& saved) {
  write(OrderedJson{{"step", saved.step}, {"save_seconds", saved.seconds}, {"save_stall_seconds", saved.stall}}.dump());
}

void MetricsWriter::on_validation(int64_t step, const Evaluation& evaluation) {
  OrderedJson line{{"step", step}, {"eval_loss", evaluation.loss}};
  for (const auto& [name, value] : evaluation.of_answers) line["eval_" + name] = value;
  if (evaluation.of_answers.empty()) {
    line["eval_perplexity"] = evaluation.perplexity();
    line["eval_bits_per_token"] = evaluation.bits_per_token();
  }
  if (evaluation.text_bytes > 0) line["eval_bits_per_byte"] = evaluation.bits_per_byte();
  line["eval_targets"] = evaluation.targets;
  line["eval_seconds"] = evaluation.seconds;
  write(line.dump());
}

void MetricsWriter::on_sample(int64_t step, const std::string& prompt, const std::string& text) {
  const OrderedJson line{{"step", step}, {"sample_prompt", prompt}, {"sample_text", text}};
  write(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

void MetricsWriter::on_interrupt(int64_t /*step*/, const std::filesystem::path& /*checkpoint*/) { write_kept(); }

void MetricsWriter::on_finish(const std::vector<RankMemory>& /*peaks*/, const std::filesystem::path& /*exported*/) {
  write_kept();
}

void MetricsWriter::write(const std::string& line) {
  constexpr int kMostFailures = 3;
  kept_ += line + "\n";
  try {
    write_kept();
  } catch (const IoError& failure) {
    ++failures_;
    require<IoError>(failures_ < kMostFailures, "{} lines in a row could not be written: {}", failures_,
                     failure.what());
    if (failures_ == 1 && note_)
      note_(fmt::format("{}; the run goes on, and the line is written with the next one", failure.what()));
  }
}

void MetricsWriter::write_kept() {
  if (kept_.empty()) return;
  file_.append(kept_);
  kept_.clear();
  if (std::exchange(failures_, 0) > 0 && note_) note_(fmt::format("{} is whole again", file_.path().string()));
}

}  // namespace nought
