#include "nought/grammar/token_constraint.h"

#include <limits>

#include "nought/base/error.h"

namespace nought {

namespace {
constexpr size_t kMostMasks = 4096;
}  // namespace

const std::vector<uint64_t>& TokenMasks::of(GrammarStates::State state) {
  if (const auto found = masks_.find(state); found != masks_.end()) return found->second;
  if (masks_.size() >= kMostMasks) masks_.clear();
  std::vector<uint64_t> mask(static_cast<size_t>(tokens_->size() + 63) / 64);
  std::vector<GrammarStates::State> path{state};  // the states after each byte of the token that is followed
  for (const TokenBytes::Entry& entry : tokens_->sorted()) {
    const auto common = static_cast<size_t>(entry.common);
    if (common >= path.size()) continue;  // it goes on as one that does not
    path.resize(common + 1);
    const std::string_view bytes = tokens_->of(entry.id);
    while (path.size() <= bytes.size()) {
      const GrammarStates::State to = states_.next(path.back(), static_cast<uint8_t>(bytes[path.size() - 1]));
      if (to == GrammarStates::kDead) break;
      path.push_back(to);
    }
    if (path.size() > bytes.size()) mask[static_cast<size_t>(entry.id) / 64] |= uint64_t{1} << (entry.id % 64);
  }
  return masks_.emplace(state, std::move(mask)).first->second;
}

void TokenConstraint::apply(std::span<float> logits, std::span<const int32_t> ends) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::vector<std::pair<int32_t, float>> kept;
  if (may_end())
    for (const int32_t id : ends) kept.emplace_back(id, logits[static_cast<size_t>(id)]);
  const std::vector<uint64_t>& mask = masks_->of(state_);
  for (size_t i = 0; i < logits.size(); ++i)
    if (i / 64 >= mask.size() || (mask[i / 64] >> (i % 64) & 1) == 0) logits[i] = kNever;
  for (const int32_t id : ends) logits[static_cast<size_t>(id)] = kNever;
  for (const auto& [id, logit] : kept) logits[static_cast<size_t>(id)] = logit;
}

void TokenConstraint::take(int32_t token) {
  const GrammarStates::State to = token < masks_->tokens().size()
                                      ? masks_->states().next(state_, masks_->tokens().of(token))
                                      : GrammarStates::kDead;
  require(to != GrammarStates::kDead, "token {} does not fit the constraint of the answer", token);
  state_ = to;
}

}  // namespace nought
