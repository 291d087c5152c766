#include "nought/cli/line_reader.h"

#include <clocale>
#include <cstring>

#include <histedit.h>
#include <langinfo.h>

#include "nought/base/error.h"

namespace nought {

struct LineReader::Editor {
  Editor(std::FILE* in, std::FILE* out, std::string text) : prompt(std::move(text)) {
    // libedit reads characters of the locale: those of UTF-8, which models speak.
    if (std::setlocale(LC_CTYPE, "") == nullptr || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
      std::setlocale(LC_CTYPE, "C.UTF-8");
    constexpr int kLines = 1000;
    line = el_init("nought", in, out, stderr);
    earlier = history_init();
    require<IoError>(line != nullptr && earlier != nullptr, "cannot prepare the terminal for editing lines");
    HistEvent event{};
    history(earlier, &event, H_SETSIZE, kLines);
    history(earlier, &event, H_SETUNIQUE, 1);
    el_set(line, EL_CLIENTDATA, this);
    el_set(line, EL_PROMPT, prompt_of);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_SIGNAL, 1);  // the terminal is put in order before a signal ends the program
    el_set(line, EL_HIST, history, earlier);
    el_source(line, nullptr);  // the user's ~/.editrc
  }
  ~Editor() {
    if (line != nullptr) el_end(line);
    if (earlier != nullptr) history_end(earlier);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  static char* prompt_of(EditLine* of) {
    void* self = nullptr;
    el_get(of, EL_CLIENTDATA, &self);
    return static_cast<Editor*>(self)->prompt.data();
  }

  std::string prompt;
  EditLine* line = nullptr;
  History* earlier = nullptr;
};

LineReader::LineReader(std::FILE* in, std::FILE* out, bool edit, std::string prompt)
    : in_(in), editor_(edit ? std::make_unique<Editor>(in, out, std::move(prompt)) : nullptr) {}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::next() {
  std::string line;
  if (editor_) {
    int length = 0;
    const char* text = el_gets(editor_->line, &length);
    if (text == nullptr || length <= 0) return std::nullopt;
    line.assign(text, static_cast<size_t>(length));
  } else {
    int c = std::getc(in_);
    if (c == EOF) return std::nullopt;
    for (; c != EOF && c != '\n'; c = std::getc(in_)) line += static_cast<char>(c);
  }
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event{};
  if (editor_ && line.find_first_not_of(' ') != std::string::npos)
    history(editor_->earlier, &event, H_ENTER, line.c_str());
  return line;
}

}  // namespace nought
