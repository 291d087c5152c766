// step_time(): the seconds of a step, by what is predicted of its work and transfers and by rates that were measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/engine/pipeline_timeline.h"
#include "nought/measure/operation_times.h"
#include "nought/plan/predict.h"

namespace nought {

/// What a row of the table counts.
enum class Amount : uint8_t { bytes, flops, operations, seconds };

/// A row of the table: work or bytes, and what they take.
struct StepPart {
  std::string name;
  double amount = 0;
  Amount of = Amount::bytes;
  double rate = 0;    // per second
  double hidden = 0;  // seconds of these that run beside others
  double seconds() const { return amount / rate; }
};

/// One row of ZeRO-Infinity's model: what crosses between kernels and where it is kept.
struct CrossingPart {
  std::string name, source;  // "optimizer states", "files"
  double intensity = 0;      // FLOPs for each byte
  double bandwidth = 0;      // B/s
  double efficiency = 0;
};

/// What a step's time means, where the peak of its GPUs is known.
struct Throughput {
  double tokens = 0;  // per second, of all ranks
  int ranks = 1;
  double mfu = 0;          // model FLOPs of a rank as a share of the peak
  std::string limit = {};  // the part that takes most of the step
};

struct StepTime {
  std::vector<StepPart> parts;  // what a step has of them
  std::vector<CrossingPart> crossing;
  std::string source = "rates that were measured here";
  std::string note = {};                          // what is not in it
  std::optional<PipelineTimeline> timeline = {};  // of the passes, where ranks hold different layers
  std::optional<Throughput> throughput = {};
  double fastest = 1, slowest = 1;  // see MachineRates
  bool busy = false;

  double seconds() const;
  /// "63 ms (58 to 87 ms)": with the spread of what was measured.
  std::string str() const;
};

/// What a step of the first rank with the prediction's place takes. Products take what they do at the rate of products
/// and all other operations what they do at that of memory, one after the other; with `times` each operation takes what
/// was measured of it, and the host's work for each is added. Collectives take a time for each call and for what they
/// send; overlapped with the backward pass where a rank's threads leave cores free. A pipeline stage waits for the
/// others as its timeline shows, and ranks that are more than the cores wait for these. Reads and writes of files run
/// beside: those of the update beside it, as far as its options let them, others overlapped with the passes. An update
/// overlapped with the passes, of the same step or of the next one, hides its own there too; its arithmetic takes the
/// same cores.
StepTime step_time(const ModelConfig& config, const Prediction& prediction, const MachineRates& rates);
StepTime step_time(const ModelConfig& config, const Prediction& prediction, OperationTimes& times);
/// What a step takes at the slowest of these places of a pipeline.
StepTime slowest_step(const ModelConfig& config, const std::vector<Prediction>& places, OperationTimes& times);

/// The rows, their sum, and the efficiencies.
std::string to_text(const StepTime& time);
OrderedJson to_json(const StepTime& time);

}  // namespace nought
