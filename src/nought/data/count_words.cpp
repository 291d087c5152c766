#include "nought/data/count_words.h"

#include <algorithm>
#include <memory>

#include "nought/data/ordered_map.h"
#include "nought/text/pre_tokenizer.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

class WordCounter final : public CorpusVisitor {
 public:
  WordCounter(const PreTokenizer& split, WordCounts& counts) : split_(split), counts_(counts) {}

  void text(std::string_view text, bool, bool) override {
    while (!text.empty()) {
      const size_t valid = valid_utf8_prefix(text);
      count(text.substr(0, valid));
      text.remove_prefix(std::min(text.size(), std::max<size_t>(valid, 1)));
    }
  }
  void conversation(const ChatRecord& record) override {
    for (const ChatMessage& message : record.messages) text(message.content, true, true);
  }

 private:
  void count(std::string_view text) {
    if (text.empty()) return;
    pieces_.views.assign(1, text);
    split_.apply(pieces_, true);
    for (const std::string_view word : pieces_.views) {
      const auto found = counts_.find(word);
      found == counts_.end() ? void(counts_.emplace(word, 1)) : void(++found->second);
    }
  }

  const PreTokenizer& split_;
  WordCounts& counts_;
  TextPieces pieces_;
};

}  // namespace

WordCounts count_words(const std::vector<std::filesystem::path>& files, const CorpusOptions& options,
                       WordPattern pattern, int threads, const std::function<void(int64_t)>& observe) {
  const std::unique_ptr<PreTokenizer> split = make_split(regex_of(pattern));
  CorpusReader reader(files, options, cut_between_lines);
  WordCounts all;
  int64_t bytes = 0;
  ordered_map(
      threads, [&] { return reader.next(); },
      [&](const Portion& portion) {
        WordCounts counts;
        WordCounter counter(*split, counts);
        visit_documents(portion, options, counter);
        return counts;
      },
      [&](const Portion& portion, const WordCounts& counts) {
        for (const auto& [word, count] : counts) all[word] += count;
        observe(bytes += static_cast<int64_t>(portion.bytes.size()));
      });
  return all;
}

}  // namespace nought
