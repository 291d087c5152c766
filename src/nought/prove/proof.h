// prove(): what can be known of a run before it starts, for all of its ranks: one property after the other, with what
// was covered, or the first counterexample.
//
// Design goals: it is the code of the run that is looked at, by the dry run of `nought plan`: one rank of each class
// goes through load, steps with accumulation, validation, saving, samples and one step more. Non-goals: values; what
// the network and other hosts do; calls that only a signal or a failure makes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/file_format.h"
#include "nought/prove/dry_runs.h"
#include "nought/prove/machine_limits.h"
#include "nought/train/trainer.h"

namespace nought {

struct Property {
  std::string name;                                   // "calls", for programs
  std::string claim;                                  // what holds
  std::string covered;                                // how much of the run was looked at
  std::optional<Counterexample> counterexample = {};  // given: it does not hold

  bool holds() const { return !counterexample; }
};

struct Proof {
  int ranks = 1;
  std::vector<int> chosen;  // one of each class
  double seconds = 0;
  std::vector<Property> properties;

  bool holds() const;
  /// The first that does not hold; null if all do.
  const Property* failed() const;
};

/// What a start may take for its proof. Launcher and first rank make one each.
inline constexpr std::chrono::milliseconds kMostBeforeStart{300};

/// ready: of ready_run(). config: of its model. resumes: the run continues plan.resume_from, whose checkpoint is looked
/// at, too.
Proof prove(const RunPlan& ready, const ModelConfig& config, bool resumes);

/// What `nought train` asks before it begins: prove() without the budgets, which require_memory() knows. Dry runs that
/// would take longer than `most` are given up. Returns "", or a line for the user about what is not proven and why.
/// ConfigError with the counterexample.
std::string require_proven(const RunPlan& ready, const ModelConfig& config, bool resumes,
                           std::chrono::milliseconds most = kMostBeforeStart);
/// ConfigError that names the first of these that does not hold.
void require_holds(const std::vector<Property>& properties);

/// The properties of dry runs alone: calls, waits, lifetimes, and what a resume finds.
std::vector<Property> prove_dry_runs(const DryRuns& runs);

/// A line for each property.
std::string to_text(const Proof& proof);
inline constexpr FileFormat kProofFormat{"nought-proof", 1};
OrderedJson to_json(const Proof& proof);

}  // namespace nought
