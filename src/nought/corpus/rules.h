// The rule sets: their numbers as structs, and what makes a Filter of each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nought/corpus/filter.h"

namespace nought {

/// Gopher's quality rules (2112.11446, A.1.1; datatrove's GopherQualityFilter). A limit of 0 is no limit.
struct GopherRules {
  int64_t min_doc_words = 50, max_doc_words = 100'000;
  double min_avg_word_length = 3, max_avg_word_length = 10;
  double max_symbol_word_ratio = 0.1, max_bullet_lines_ratio = 0.9, max_ellipsis_lines_ratio = 0.3;
  double min_alpha_words_ratio = 0.8;
  int64_t min_stop_words = 2;
  std::vector<std::string> stop_words{"the", "be", "to", "of", "and", "that", "have", "with"};

  static constexpr const char* kName = "gopher";
  template <class V>
  void visit(V& v) {
    v("min_doc_words", min_doc_words, "least number of words that are no symbols");
    v("max_doc_words", max_doc_words, "greatest number of words that are no symbols");
    v("min_avg_word_length", min_avg_word_length, "least mean length of these words, in characters");
    v("max_avg_word_length", max_avg_word_length, "greatest mean length of these words");
    v("max_symbol_word_ratio", max_symbol_word_ratio, "# per word, and ellipses per word");
    v("max_bullet_lines_ratio", max_bullet_lines_ratio, "part of the lines that begin with a bullet");
    v("max_ellipsis_lines_ratio", max_ellipsis_lines_ratio, "part of the lines that end in an ellipsis");
    v("min_alpha_words_ratio", min_alpha_words_ratio, "part of the words with a letter");
    v("min_stop_words", min_stop_words, "how many of stop_words must occur");
    v("stop_words", stop_words, "common words");
  }
};

/// Gopher's rules of repetition (table A1; datatrove's GopherRepetitionFilter). A limit of 0 is no limit.
struct RepetitionRules {
  double dup_line_frac = 0.3, dup_para_frac = 0.3, dup_line_char_frac = 0.2, dup_para_char_frac = 0.2;
  std::vector<std::vector<double>> top_n_grams{{2, 0.2}, {3, 0.18}, {4, 0.16}};
  std::vector<std::vector<double>> dup_n_grams{{5, 0.15}, {6, 0.14}, {7, 0.13}, {8, 0.12}, {9, 0.11}, {10, 0.10}};

  static constexpr const char* kName = "gopher-repetition";
  template <class V>
  void visit(V& v) {
    v("dup_line_frac", dup_line_frac, "part of the lines that repeat an earlier one");
    v("dup_para_frac", dup_para_frac, "part of the paragraphs that repeat an earlier one");
    v("dup_line_char_frac", dup_line_char_frac, "part of the characters in such lines");
    v("dup_para_char_frac", dup_para_char_frac, "part of the characters in such paragraphs");
    v("top_n_grams", top_n_grams, "[n, part of the characters in the most frequent n-gram]");
    v("dup_n_grams", dup_n_grams, "[n, part of the characters in n-grams that repeat earlier ones]");
  }
};

/// C4's rules of lines and pages (1910.10683, 2.2; datatrove's C4QualityFilter), and mC4's of paragraphs.
struct C4Rules {
  bool remove_citations = true, filter_no_terminal_punct = true;
  int64_t min_num_sentences = 5, min_words_per_line = 3, max_word_length = 1000;
  bool filter_lorem_ipsum = true, filter_javascript = true, filter_curly_bracket = true, filter_policy = true;
  int64_t min_paragraphs = 0, min_paragraph_len = 200;

  static constexpr const char* kName = "c4";
  template <class V>
  void visit(V& v) {
    v("remove_citations", remove_citations, "[1], [edit] and [citation needed] go");
    v("filter_no_terminal_punct", filter_no_terminal_punct, "lines without . ? ! \" or ' at the end go");
    v("min_num_sentences", min_num_sentences, "least number of sentences of what stays; -1: no limit");
    v("min_words_per_line", min_words_per_line, "shorter lines go; -1: no limit");
    v("max_word_length", max_word_length, "lines with a longer word go, in characters; -1: no limit");
    v("filter_lorem_ipsum", filter_lorem_ipsum, "pages with lorem ipsum go");
    v("filter_javascript", filter_javascript, "lines that mention javascript go");
    v("filter_curly_bracket", filter_curly_bracket, "pages with { go");
    v("filter_policy", filter_policy, "lines about cookies and terms of use go");
    v("min_paragraphs", min_paragraphs, "mC4: how many lines must have min_paragraph_len; 0: no limit, mC4 has 3");
    v("min_paragraph_len", min_paragraph_len, "mC4: characters of such a line");
  }
};

/// FineWeb's own rules (2406.17557, 3.5; datatrove's FineWebQualityFilter).
struct FineWebRules {
  double line_punct_thr = 0.12;
  bool line_punct_exclude_zero = false;
  double short_line_thr = 0.67;
  int64_t short_line_length = 30;
  double char_duplicates_ratio = 0.01, new_line_ratio = 0.3;

  static constexpr const char* kName = "fineweb";
  template <class V>
  void visit(V& v) {
    v("line_punct_thr", line_punct_thr, "least part of the lines that end a sentence");
    v("line_punct_exclude_zero", line_punct_exclude_zero, "whether a text without any such line stays");
    v("short_line_thr", short_line_thr, "greatest part of short lines");
    v("short_line_length", short_line_length, "characters of a short line, at most");
    v("char_duplicates_ratio", char_duplicates_ratio, "greatest part of the characters in lines that repeat");
    v("new_line_ratio", new_line_ratio, "greatest number of line breaks per word");
  }
};

std::unique_ptr<Filter> make_filter(GopherRules rules);
/// ConfigError if an n-gram is no pair of a whole number and a part.
std::unique_ptr<Filter> make_filter(RepetitionRules rules);
std::unique_ptr<Filter> make_filter(C4Rules rules);
std::unique_ptr<Filter> make_filter(FineWebRules rules);

}  // namespace nought
