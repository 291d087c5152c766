#include "nought/simulate/layouts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr double kUsable = 0.92;  // of a device's memory: contexts of libraries and fragments take the rest

bool divides(double part, double whole) { return std::fmod(whole, part) == 0; }

std::vector<double> powers_up_to(double most) {
  std::vector<double> powers;
  for (double power = 1; power <= most; power *= 2) powers.push_back(power);
  return powers;
}

class LayoutSearch {
 public:
  LayoutSearch(const Cluster& cluster, const FittedConstants& fitted, double ranks, size_t top)
      : cluster_(cluster), fitted_(fitted), ranks_(ranks), top_(top) {}

  LayoutRanking search(const SimulatedRun& run) {
    for (const double tp : powers_up_to(std::min(ranks_, 2.0 * cluster_.domain()))) try_tensor(run, tp);
    require_any(run);
    return std::move(ranking_);
  }

 private:
  void leave_out(std::string family, std::string reason) {
    ranking_.left_out.push_back({std::move(family), std::move(reason)});
  }
  void try_tensor(SimulatedRun run, double tp);
  void try_pipeline(SimulatedRun run, double pp);
  void try_context(SimulatedRun run, double cp);
  void try_mesh(const SimulatedRun& run);
  void try_batches(SimulatedRun run);
  void try_options(SimulatedRun run);
  /// Whether it fits.
  bool consider(const SimulatedRun& run);
  void require_any(const SimulatedRun& run) const;

  const Cluster& cluster_;
  const FittedConstants& fitted_;
  double ranks_;
  size_t top_;
  LayoutRanking ranking_;
  double least_excess_ = INFINITY;  // of all layouts so far, in bytes
  SimulatedRun least_;
  double mesh_excess_ = INFINITY;  // and of this mesh's
  bool mesh_fits_ = false;
};

void LayoutSearch::try_tensor(SimulatedRun run, double tp) {
  const std::string family = fmt::format("tp {}", tp);
  if (!divides(tp, ranks_)) return leave_out(family, fmt::format("does not divide {} ranks", ranks_));
  if (!divides(tp, run.model.heads)) return leave_out(family, fmt::format("does not divide {} heads", run.model.heads));
  if (tp > cluster_.domain())
    return leave_out(family, fmt::format("crosses hosts: the fast link has {} ranks", cluster_.domain()));
  run.tp = tp;
  run.sequence_parallel = tp > 1;
  for (double pp = 1; pp <= std::min(ranks_ / tp, 2 * run.model.layers); ++pp)
    if (divides(pp, ranks_ / tp)) try_pipeline(run, pp);
}

void LayoutSearch::try_pipeline(SimulatedRun run, double pp) {
  if (pp > run.model.layers)
    return leave_out(fmt::format("tp {} pp {}", run.tp, pp),
                     fmt::format("has more stages than {} layers", run.model.layers));
  run.pp = pp;
  constexpr double kShortest = 2048;  // tokens of a rank below which nobody shares sequences
  for (const double cp : powers_up_to(std::max(run.sequence / kShortest, 1.0)))
    if (divides(cp, ranks_ / run.tp / pp) && divides(2 * cp, run.sequence)) try_context(run, cp);
}

void LayoutSearch::try_context(SimulatedRun run, double cp) {
  run.cp = cp;
  run.dp = ranks_ / run.tp / run.pp / cp;
  if (!divides(run.dp, run.global_batch))
    return leave_out(fmt::format("tp {} pp {} cp {}", run.tp, run.pp, cp),
                     fmt::format("dp {} does not divide the global batch of {}", run.dp, run.global_batch));
  if (run.model.experts == 0) return try_mesh(run);
  for (const double ep : powers_up_to(std::min(run.model.experts, run.dp * cp))) {
    if (!divides(ep, run.model.experts) || !divides(ep, run.dp * cp)) continue;
    run.ep = ep;
    try_mesh(run);
  }
}

void LayoutSearch::try_mesh(const SimulatedRun& run) {
  mesh_excess_ = INFINITY, mesh_fits_ = false;
  try_batches(run);
  if (mesh_fits_) return;
  std::string family = fmt::format("tp {} pp {} cp {}", run.tp, run.pp, run.cp);
  if (run.model.experts > 0) family += fmt::format(" ep {}", run.ep);
  leave_out(std::move(family), fmt::format("does not fit by {}", format_bytes(static_cast<int64_t>(mesh_excess_))));
}

void LayoutSearch::try_batches(SimulatedRun run) {
  constexpr double kMostMicroBatch = 16;
  const double layers = std::ceil(run.model.layers / run.pp);
  for (const double micro_batch : powers_up_to(std::min(run.global_batch / run.dp, kMostMicroBatch))) {
    if (!divides(micro_batch, run.global_batch / run.dp)) continue;
    run.micro_batch = micro_batch;
    for (const double vp : powers_up_to(run.pp > 1 ? layers : 1)) {
      if (vp > 1 && !divides(run.pp, run.micro_batches())) continue;
      run.vp = vp;
      run.schedule = vp > 1 ? SimulatedSchedule::interleaved : SimulatedSchedule::one_f_one_b;
      try_options(run);
    }
  }
}

void LayoutSearch::try_options(SimulatedRun run) {
  const int last_stage = run.dp * run.cp > 1 ? 3 : 0;
  for (int stage = last_stage > 0 ? 1 : 0; stage <= last_stage; ++stage)
    for (const Recomputed recompute : {Recomputed::none, Recomputed::light, Recomputed::full}) {
      run.zero_stage = stage, run.recompute = recompute, run.offload_states = false;
      if (consider(run)) continue;
      run.offload_states = true;  // takes time and wins nothing where it is not needed
      consider(run);
    }
}

bool LayoutSearch::consider(const SimulatedRun& run) {
  ++ranking_.considered;
  const SimulatedMemory memory = simulate_memory(run);
  const double excess = memory.total() - cluster_.memory * kUsable;
  if (excess > 0) {
    mesh_excess_ = std::min(mesh_excess_, excess);
    if (excess < least_excess_) least_excess_ = excess, least_ = run;
    return false;
  }
  mesh_fits_ = true;
  RankedLayout layout{run, simulate_step(run, cluster_, fitted_), memory};
  std::vector<RankedLayout>& best = ranking_.best;
  if (best.size() == top_ && layout.step.seconds >= best.back().step.seconds) return true;
  const auto slower =
      std::upper_bound(best.begin(), best.end(), layout,
                       [](const RankedLayout& a, const RankedLayout& b) { return a.step.seconds < b.step.seconds; });
  best.insert(slower, std::move(layout));
  if (best.size() > top_) best.pop_back();
  return true;
}

void LayoutSearch::require_any(const SimulatedRun& run) const {
  if (!ranking_.best.empty()) return;
  require<ConfigError>(ranking_.considered > 0,
                       "no layout divides {} ranks and a global batch of {}: the first reason is that {} {}", ranks_,
                       run.global_batch, ranking_.left_out.empty() ? "tp 1" : ranking_.left_out.front().family,
                       ranking_.left_out.empty() ? "is not tried" : ranking_.left_out.front().reason);
  fail<ConfigError>(
      "nothing fits {} of {} on {} ranks: the nearest, {}, lacks {}; more ranks, or GPUs with more memory, "
      "would",
      format_bytes(static_cast<int64_t>(cluster_.memory * kUsable)), cluster_.name, ranks_, least_.str(),
      format_bytes(static_cast<int64_t>(least_excess_)));
}

}  // namespace

LayoutRanking rank_layouts(const SimulatedRun& run, const Cluster& cluster, const FittedConstants& fitted, int ranks,
                           int top) {
  return LayoutSearch(cluster, fitted, ranks, static_cast<size_t>(top)).search(run);
}

}  // namespace nought
