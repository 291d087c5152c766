#include "nought/grammar/token_constraint.h"

#include <algorithm>
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
  std::vector<GrammarStates::State> path(tokens_->longest() + 1);  // the states behind each byte of a token
  path[0] = state;
  size_t good = 0;  // how many bytes of the last token went on
  const char* rest = tokens_->rests().data();
  for (const TokenBytes::Entry& entry : tokens_->sorted()) {
    const char* const bytes = rest;
    rest += entry.length - entry.common;
    if (entry.common > good) continue;  // it goes on as one that does not
    size_t at = entry.common;
    for (; at < entry.length; ++at) {
      path[at + 1] = states_.next(path[at], static_cast<uint8_t>(bytes[at - entry.common]));
      if (path[at + 1] == GrammarStates::kDead) break;
    }
    good = at;
    if (at == entry.length) mask[static_cast<size_t>(entry.id) / 64] |= uint64_t{1} << (entry.id % 64);
  }
  return masks_.emplace(state, std::move(mask)).first->second;
}

void TokenConstraint::apply(std::span<float> logits, std::span<const int32_t> ends) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::vector<std::pair<int32_t, float>> kept;
  if (may_end())
    for (const int32_t id : ends) kept.emplace_back(id, logits[static_cast<size_t>(id)]);
  const std::vector<uint64_t>& mask = masks_->of(state_);
  for (size_t begin = 0; begin < logits.size(); begin += 64) {
    const uint64_t word = begin / 64 < mask.size() ? mask[begin / 64] : 0;
    if (word == ~uint64_t{0}) continue;
    const size_t end = std::min(begin + 64, logits.size());
    for (size_t i = begin; i < end; ++i)
      if ((word >> (i - begin) & 1) == 0) logits[i] = kNever;
  }
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
