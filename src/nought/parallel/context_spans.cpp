#include "nought/parallel/context_spans.h"

#include <algorithm>

#include "nought/base/error.h"

namespace nought {

ContextSpans::ContextSpans(const ContextTokens& tokens, const AttentionOptions& options)
    : tokens_(tokens), causal_(options.causal), window_(options.window), documents_(static_cast<size_t>(tokens.rows)) {
  const int64_t length = tokens.length, all = tokens.rows * length;
  const auto add = [&](Interval document) {
    documents_[static_cast<size_t>(document.begin / length)].push_back(document);
  };
  if (options.spans.empty() && length > 0)
    for (int64_t row = 0; row < tokens.rows; ++row) add({row * length, (row + 1) * length});
  int64_t covered = options.spans.empty() ? all : 0;
  for (const AttentionSpan& span : options.spans) {
    const Interval document{span.q_begin, span.q_begin + span.q_length};
    if (document.empty()) continue;
    require<ShapeError>(document.begin == covered && document.end <= all && span.k_begin == span.q_begin &&
                            span.k_length == span.q_length && document.begin / length == (document.end - 1) / length,
                        "attention over context ranks got a document of queries [{}, {}) and keys [{}, {}) in {} rows "
                        "of {} tokens, expected one from token {} on, of one row, with the same keys",
                        document.begin, document.end, span.k_begin, span.k_begin + span.k_length, tokens.rows, length,
                        covered);
    add(document);
    covered = document.end;
  }
  require<ShapeError>(covered == all, "attention over context ranks got documents of {} tokens, expected {} rows of {}",
                      covered, tokens.rows, length);
}

template <class Body>
void ContextSpans::for_each_piece(int rank, const Body& body) const {
  int64_t held_before = 0;
  for (int64_t row = 0; row < tokens_.rows; ++row) {
    for (const Interval& chunk : tokens_.held_by(rank)) {
      const Interval held{row * tokens_.length + chunk.begin, row * tokens_.length + chunk.end};
      for (const Interval& document : documents_[static_cast<size_t>(row)]) {
        const Interval queries = intersect(held, document);
        if (queries.empty()) continue;
        body(Piece{held_before + queries.begin - held.begin, queries, document, row});
      }
      held_before += held.size();
    }
  }
}

AttentionSpan ContextSpans::span_of(const Piece& piece, Interval available, int64_t k_begin) const {
  const auto [first, end] = piece.queries;
  Interval seen = intersect(available, piece.document);
  if (causal_) {
    seen.end = std::min(seen.end, end);
  } else if (window_ > 0) {
    seen.end = std::min(seen.end, end + window_ - 1);
  }
  if (window_ > 0) seen.begin = std::max(seen.begin, first - window_ + 1);
  AttentionSpan span{.q_begin = piece.q_begin, .q_length = piece.queries.size(), .q_offset = 0};
  if (seen.empty()) return span;
  span.k_begin = k_begin + seen.begin - available.begin;
  span.k_length = seen.size();
  span.q_offset = first - seen.begin;
  return span;
}

AttentionSpan ContextSpans::span_on_chunk(const Piece& piece, int from, int half) const {
  const auto chunks = tokens_.held_by(from);
  const int64_t before_row = piece.row * tokens_.length, held_before = piece.row * tokens_.row_tokens(from);
  const Interval& chunk = chunks[static_cast<size_t>(half)];
  return span_of(piece, {before_row + chunk.begin, before_row + chunk.end},
                 held_before + (half == 0 ? 0 : chunks[0].size()));
}

std::vector<AttentionSpan> ContextSpans::on_chunks(int rank, int from, int half) const {
  std::vector<AttentionSpan> spans;
  for_each_piece(rank, [&](const Piece& piece) { spans.push_back(span_on_chunk(piece, from, half)); });
  return spans;
}

std::vector<AttentionSpan> ContextSpans::on_all(int rank) const {
  std::vector<AttentionSpan> spans;
  for_each_piece(rank, [&](const Piece& piece) {
    spans.push_back(span_of(piece, {0, tokens_.rows * tokens_.length}, 0));
  });
  return spans;
}

bool ContextSpans::meet(int rank, int from) const {
  bool found = false;
  for_each_piece(rank, [&](const Piece& piece) {
    for (const int half : {0, 1}) found = found || span_on_chunk(piece, from, half).k_length > 0;
  });
  return found;
}

int ContextSpans::hops(int from) const {
  const int ranks = tokens_.ranks.ranks;
  int hops = ranks - 1;
  while (hops > 0 && !meet((from + hops) % ranks, from)) --hops;
  return hops;
}

bool any_keys(const std::vector<AttentionSpan>& spans) {
  return std::any_of(spans.begin(), spans.end(), [](const AttentionSpan& span) { return span.k_length > 0; });
}

}  // namespace nought
