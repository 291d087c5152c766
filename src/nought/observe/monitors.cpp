#include "nought/observe/monitors.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace nought {

namespace fs = std::filesystem;

void ScalarMonitor::on_step(const StepReport& report) {
  const int64_t samples = report.step * samples_per_step_;
  add("Train/Samples/train_loss", samples, report.loss);
  add("Train/Samples/lr", samples, report.lr);
  add("Train/Samples/grad_norm", samples, report.grad_norm);
  add("Train/Samples/tokens_per_second", samples, report.tokens_per_second);
  if (report.loss_scale > 0) add("Train/Samples/loss_scale", samples, report.loss_scale);
  if (!report.ranks) return;
  report.ranks->for_each([&](const std::string& name, const TimeSpread& seconds) {
    const std::string tag = "Train/Samples/" + name;
    add(tag + "_seconds_min", samples, seconds.min);
    add(tag + "_seconds_median", samples, seconds.median);
    add(tag + "_seconds_max", samples, seconds.max);
    add(tag + "_slowest_rank", samples, seconds.slowest);
  });
}

void ScalarMonitor::on_validation(int64_t step, const Evaluation& evaluation) {
  const int64_t samples = step * samples_per_step_;
  add("Eval/Samples/eval_loss", samples, evaluation.loss);
  add("Eval/Samples/bits_per_token", samples, evaluation.bits_per_token());
  if (evaluation.text_bytes > 0) add("Eval/Samples/bits_per_byte", samples, evaluation.bits_per_byte());
}

void TensorBoardMonitor::on_start(const RunSummary&) { file_.emplace(folder_); }

void TensorBoardMonitor::add(const std::string& tag, int64_t samples, double value) {
  file_->add_scalar(tag, samples, value);
}

void CsvMonitor::add(const std::string& tag, int64_t samples, double value) {
  auto it = files_.find(tag);
  if (it == files_.end()) it = files_.emplace(tag, open(tag)).first;
  it->second.append(fmt::format("{},{}\n", samples, value));
}

AppendFile CsvMonitor::open(const std::string& tag) const {
  std::string name = tag;
  std::replace(name.begin(), name.end(), '/', '_');
  const fs::path path = folder_ / (name + ".csv");
  std::error_code error;
  fs::create_directories(folder_, error);
  std::string kept = fmt::format("step,{}\n", tag);
  if (kept_samples_ > 0) {
    std::ifstream earlier(path);
    std::string line;
    std::getline(earlier, line);  // the header
    while (std::getline(earlier, line))
      if (std::strtoll(line.c_str(), nullptr, 10) <= kept_samples_) kept += line + "\n";
  }
  return AppendFile(path, kept);
}

}  // namespace nought
