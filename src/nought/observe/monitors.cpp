#include "nought/observe/monitors.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "nought/base/open_file.h"

namespace nought {

namespace fs = std::filesystem;

/// phase: "Train" or "Eval"; name: DeepSpeed's.
std::string ScalarMonitor::tag_of(const char* phase, const std::string& name) const {
  const std::string own = phase;
  if (names_ == ScalarNames::deepspeed) return own + "/Samples/" + name;
  const std::string plain = name == "train_loss" || name == "eval_loss" ? "loss"
                            : name == "lr"                              ? "learning_rate"
                                                                        : name;
  return (own == "Train" ? "train/" : "eval/") + plain;
}

void ScalarMonitor::on_step(const StepReport& report) {
  const int64_t samples = report.step * samples_per_step_;
  const auto train = [&](const std::string& name, double value) { add(tag_of("Train", name), samples, value); };
  train("train_loss", report.loss);
  train("lr", report.lr);
  train("grad_norm", report.grad_norm);
  train("tokens_per_second", report.tokens_per_second);
  for (const auto& [name, value] : report.of_answers) train(name, value);
  if (report.loss_scale > 0) train("loss_scale", report.loss_scale);
  if (!report.ranks) return;
  report.ranks->for_each([&](const std::string& name, const TimeSpread& seconds) {
    train(name + "_seconds_min", seconds.min);
    train(name + "_seconds_median", seconds.median);
    train(name + "_seconds_max", seconds.max);
    train(name + "_slowest_rank", seconds.slowest);
  });
}

void ScalarMonitor::on_validation(int64_t step, const Evaluation& evaluation) {
  const int64_t samples = step * samples_per_step_;
  const auto eval = [&](const std::string& name, double value) { add(tag_of("Eval", name), samples, value); };
  eval("eval_loss", evaluation.loss);
  for (const auto& [name, value] : evaluation.of_answers) eval(name, value);
  if (evaluation.of_answers.empty()) eval("bits_per_token", evaluation.bits_per_token());
  if (evaluation.text_bytes > 0) eval("bits_per_byte", evaluation.bits_per_byte());
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
    std::istringstream earlier(bytes_if_there(path).value_or(""));  // IoError: the lines of before are not lost
    std::string line;
    std::getline(earlier, line);  // the header
    while (std::getline(earlier, line))
      if (std::strtoll(line.c_str(), nullptr, 10) <= kept_samples_) kept += line + "\n";
  }
  return AppendFile(path, kept);
}

}  // namespace nought
