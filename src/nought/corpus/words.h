// Words and sentences as spaCy's English tokenizer cuts them, which datatrove's filters count: punctuation marks are
// words of their own, "don't" is two.
//
// Design goals: the same decisions of filters as with spaCy's rules for prefixes, suffixes, infixes and contractions.
// Non-goals: languages without spaces between words; spaCy's list of emoticons.
// Source: spacy/lang/punctuation.py, spacy/lang/en, spacy/pipeline/sentencizer.pyx (MIT).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace nought {

/// The words of valid UTF-8, as views into it, appended to `words`.
void split_words(std::string_view text, std::vector<std::string_view>& words);

/// The number of sentences. One ends at a word that is a single mark such as "." or "?"; marks behind it belong to it.
int64_t count_sentences(std::string_view text);

}  // namespace nought
