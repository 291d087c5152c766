// step_time(): the seconds of a step, by what is predicted of its work and transfers and by rates that were measured.
#pragma once

#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/plan/predict.h"

namespace nought {

/// What was measured of a rank on this machine.
struct MachineRates {
  double flops = 0;            // FLOP/s of a product in the dtype of the model
  double memory = 0;           // B/s
  double read = 0, write = 0;  // B/s of files; 0: not measured
  std::string note = {};       // why they were not, if they matter
};

/// A row of the table: work or bytes, and what they take.
struct StepPart {
  std::string name;
  double amount = 0;  // FLOPs of products, else bytes
  bool flops = false;
  double rate = 0;    // per second
  double hidden = 0;  // seconds of these that run beside others
  double seconds() const { return amount / rate; }
};

/// One row of ZeRO-Infinity's model: what crosses between kernels and where it is kept.
struct CrossingPart {
  std::string name, home;  // "optimizer states", "files"
  double intensity = 0;    // FLOPs for each byte
  double bandwidth = 0;    // B/s
  double efficiency = 0;
};

struct StepTime {
  std::vector<StepPart> parts;  // what a step has of them
  std::vector<CrossingPart> crossing;
  std::string note = {};  // what is not in it

  double seconds() const;
};

/// Products at the rate of products and all other operations at that of memory, one after the other. Reads and writes
/// of files run beside: those of the update beside it, as far as its options let them, others beside the passes. An
/// update beside the passes, of the same step or of the next one, hides its own there too; its arithmetic takes the
/// same cores. What ranks send takes no time.
StepTime step_time(const ModelConfig& config, const Prediction& prediction, const MachineRates& rates);

/// The rows, their sum, and the efficiencies.
std::string to_text(const StepTime& time);
OrderedJson to_json(const StepTime& time);

}  // namespace nought
