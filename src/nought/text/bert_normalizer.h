// BertNormalizer: the rules by which BERT's tokenizers change a text before they cut it into words.
//
// Characters are classed as utf8proc has them. The tokenizers library has the classes of Unicode 8: accents,
// punctuation and format characters of scripts that are younger may differ.
#pragma once

#include <memory>

#include "nought/text/normalizer.h"

namespace nought {

struct BertRules {
  bool clean_text = true;        // control characters go, and white space becomes spaces
  bool parts_ideographs = true;  // Chinese characters get a space on each side
  bool strip_accents = true;
  bool lowercase = true;
};

/// A step that applies the rules, in the order of the members.
std::unique_ptr<Normalizer> make_bert_normalizer(const BertRules& rules);

}  // namespace nought
