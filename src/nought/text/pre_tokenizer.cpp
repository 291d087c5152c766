#include "nought/text/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "nought/text/step_chain.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

/// What becomes of the matches of a pattern.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Fragment {
  size_t begin, end;
  bool matched;
};

// Joins fragments as the behaviour says; the rules of Hugging Face's NormalizedString::split.
void join(std::vector<Fragment>& fragments, Behavior behavior) {
  if (behavior == Behavior::removed) {
    std::erase_if(fragments, [](const Fragment& s) { return s.matched; });
    return;
  }
  if (behavior == Behavior::isolated) return;
  std::vector<Fragment> joined;
  bool last_matched = false;  // whether the last fragment itself matched, before joining
  for (const Fragment& fragment : fragments) {
    bool joins = !joined.empty();
    if (behavior == Behavior::merged_with_previous) joins = joins && fragment.matched && !last_matched;
    if (behavior == Behavior::contiguous) joins = joins && fragment.matched == last_matched;
    if (behavior == Behavior::merged_with_next) joins = joins && last_matched && !fragment.matched;
    joins ? void(joined.back().end = fragment.end) : joined.push_back(fragment);
    last_matched = fragment.matched;
  }
  fragments = std::move(joined);
}

class Split final : public PreTokenizer {
 public:
  Split(std::string_view pattern, Behavior behavior, bool invert)
      : pattern_(pattern), behavior_(behavior), invert_(invert) {}

  bool cuts_between_lines() const override {
    constexpr std::array kKnown{kGpt2Pattern, kCl100kPattern, kO200kPattern, kQwen2Pattern};
    return behavior_ == Behavior::isolated &&
           std::find(kKnown.begin(), kKnown.end(), pattern_.pattern()) != kKnown.end();
  }

  void apply(TextPieces& pieces, bool) const override {
    pieces.next.clear();
    std::vector<Fragment> fragments;
    for (const std::string_view piece : pieces.views) {
      pieces.matches.clear();
      pattern_.find_all(piece, pieces.matches);
      if (behavior_ == Behavior::isolated) {  // inverting changes nothing
        append_all(piece, pieces.matches, pieces.next);
        continue;
      }
      fragments.clear();
      size_t done = 0;
      for (const auto& [begin, end] : pieces.matches) {
        if (begin > done) fragments.push_back({done, begin, invert_});
        fragments.push_back({begin, end, !invert_});
        done = end;
      }
      if (piece.size() > done) fragments.push_back({done, piece.size(), invert_});
      join(fragments, behavior_);
      for (const Fragment& s : fragments) pieces.next.push_back(piece.substr(s.begin, s.end - s.begin));
    }
    pieces.views.swap(pieces.next);
  }

 private:
  static void append_all(std::string_view piece, const std::vector<Regex::Match>& matches,
                         std::vector<std::string_view>& out) {
    size_t done = 0;
    for (const auto& [begin, end] : matches) {
      if (begin > done) out.push_back(piece.substr(done, begin - done));
      out.push_back(piece.substr(begin, end - begin));
      done = end;
    }
    if (piece.size() > done) out.push_back(piece.substr(done));
  }

  Regex pattern_;
  Behavior behavior_;
  bool invert_;
};

/// ByteLevel's add_prefix_space.
class PrefixSpace final : public PreTokenizer {
 public:
  void apply(TextPieces& pieces, bool) const override {
    for (std::string_view& piece : pieces.views) {
      if (!piece.starts_with(' ')) piece = pieces.made.emplace_back(" ").append(piece);
    }
  }
};

/// Spaces become a visible character, which also stands before the first word.
class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void apply(TextPieces& pieces, bool at_start) const override {
    pieces.next.clear();
    for (size_t i = 0; i < pieces.views.size(); ++i) {
      std::string& text = pieces.made.emplace_back(pieces.views[i]);
      replace_all(text, " ", replacement_);
      const bool marked = prepend_ == Prepend::always || (prepend_ == Prepend::first && i == 0 && at_start);
      if (marked && !text.starts_with(replacement_)) text.insert(0, replacement_);
      split_ ? append_words(text, pieces.next) : pieces.next.push_back(text);
    }
    pieces.views.swap(pieces.next);
  }

 private:
  // Each word begins with its mark.
  void append_words(std::string_view text, std::vector<std::string_view>& out) const {
    while (!text.empty()) {
      const size_t end = text.find(replacement_, text.starts_with(replacement_) ? replacement_.size() : 0);
      out.push_back(text.substr(0, end));
      text.remove_prefix(out.back().size());
    }
  }

  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

std::string escape_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(R"(\^$.|?*+()[]{}-#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Behavior read_behavior(const JsonView& json) {
  constexpr std::array<std::pair<std::string_view, Behavior>, 5> kNames{{
      {"Removed", Behavior::removed},
      {"Isolated", Behavior::isolated},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous},
  }};
  for (const auto& [name, behavior] : kNames)
    if (json.string() == name) return behavior;
  json.check(false, "the behavior {} is not known", json.string());
  return Behavior::isolated;
}

std::unique_ptr<PreTokenizer> read_split(const JsonView& json) {
  const JsonView pattern = json["pattern"];
  const bool plain = !pattern["String"].is_null();
  const std::string text = plain ? escape_regex(pattern["String"].string()) : pattern["Regex"].string();
  pattern.check(!text.empty(), "is empty");
  return std::make_unique<Split>(text, read_behavior(json["behavior"]), json["invert"].boolean_or(false));
}

std::unique_ptr<PreTokenizer> read_metaspace(const JsonView& json) {
  const JsonView given = json["replacement"];
  const std::string replacement = given.is_null() ? "\u2581" : replacement_text(given);
  given.check(!replacement.empty(), "is no character");
  const bool legacy = json["add_prefix_space"].boolean_or(true);
  const std::string scheme = json["prepend_scheme"].string_or(legacy ? "always" : "never");
  json["prepend_scheme"].check(scheme == "always" || scheme == "first" || scheme == "never", "{} is not known", scheme);
  const auto prepend = scheme == "always"  ? Metaspace::Prepend::always
                       : scheme == "first" ? Metaspace::Prepend::first
                                           : Metaspace::Prepend::never;
  return std::make_unique<Metaspace>(replacement, prepend, json["split"].boolean_or(true));
}

void read_byte_level(const JsonView& json, PreTokenizers& result) {
  if (json["add_prefix_space"].boolean_or(true)) result.steps.push_back(std::make_unique<PrefixSpace>());
  if (json["use_regex"].boolean_or(true)) result.steps.push_back(make_split(kGpt2Pattern));
  result.byte_level = true;
}

constexpr std::string_view kPunctuationMark = R"([\p{P}$+<=>^`|~])";

void add_pre_tokenizer(const JsonView& json, const std::string& type, PreTokenizers& result) {
  const auto split = [&](std::string_view pattern, Behavior behavior) {
    result.steps.push_back(std::make_unique<Split>(pattern, behavior, false));
  };
  // ByteLevel rewrites the text in characters for bytes, which later patterns would see.
  json.check(!result.byte_level, "a pre-tokenizer after ByteLevel is not supported");
  if (type == "ByteLevel") {
    read_byte_level(json, result);
  } else if (type == "Split") {
    result.steps.push_back(read_split(json));
  } else if (type == "Digits") {
    split(json["individual_digits"].boolean_or(false) ? R"(\p{N})" : R"(\p{N}+)", Behavior::isolated);
  } else if (type == "Punctuation") {
    const JsonView behavior = json["behavior"];
    split(kPunctuationMark, behavior.is_null() ? Behavior::isolated : read_behavior(behavior));
  } else if (type == "BertPreTokenizer") {
    split(R"(\s+)", Behavior::removed);
    split(kPunctuationMark, Behavior::isolated);
  } else if (type == "Whitespace") {
    result.steps.push_back(std::make_unique<Split>(R"(\w+|[^\w\s]+)", Behavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    split(R"(\s+)", Behavior::removed);
  } else if (type == "Metaspace") {
    result.steps.push_back(read_metaspace(json));
  } else {
    json.check(false,
               "the pre-tokenizer {} is not supported; supported are ByteLevel, Split, Digits, Punctuation, "
               "BertPreTokenizer, Whitespace, WhitespaceSplit, Metaspace and Sequence",
               type);
  }
}

}  // namespace

size_t cut_between_lines(std::string_view text, size_t from) {
  const auto is_printable = [](char c) { return c > ' ' && c <= '~'; };
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t newline = text.find('\n', std::max<size_t>(from, 2) - 1); newline < text.size() - 1;
       newline = text.find('\n', newline + 1))
    if (is_printable(text[newline - 1]) && is_letter(text[newline + 1])) return newline + 1;
  return std::string_view::npos;
}

std::unique_ptr<PreTokenizer> make_split(std::string_view pattern) {
  return std::make_unique<Split>(pattern, Behavior::isolated, false);
}

PreTokenizers read_pre_tokenizers(const JsonView& json) {
  PreTokenizers result;
  for_each_step(json, "pretokenizers",
                [&](const JsonView& step, const std::string& type) { add_pre_tokenizer(step, type, result); });
  return result;
}

}  // namespace nought
