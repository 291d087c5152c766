#include "nought/report/page.h"

#include "run_files.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/report/sections.h"

namespace nought::page_test {
namespace {

using nlohmann::json;
using test::run_record;
using test::step_line;
using test::step_lines;
using test::TempFolder;
using test::write_run_files;
using testing::HasSubstr;
using testing::Not;

/// The data that the page's script reads.
json data_in(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = page.find(begin);
  if (at == std::string::npos) return {};
  return json::parse(page.substr(at + begin.size(), page.find("</script>", at) - at - begin.size()));
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Page, its_numbers_are_those_of_the_metrics_to_the_bit) {
  const TempFolder folder;
  const auto runs = read_run_folders({write_run_files(folder, "out", step_lines(9), run_record({}))});
  const std::string page = report_page(runs, {});
  const json loss = data_in(page)["charts"][0]["series"][0];
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(loss["x"][i], i + 1);
    EXPECT_EQ(loss["y"][i].get<double>(), 2.0 / static_cast<double>(i + 1));
  }
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">0.6666666666666666</td>")) << "in the table, too";
  EXPECT_THAT(page, HasSubstr("1.00 KiB")) << "the measured peak";
  EXPECT_EQ(count_of(page, "<script"), 2u);
}

TEST(Page, nothing_that_comes_from_a_run_is_markup) {
  const TempFolder folder;
  const std::string evil = "</script><img src=x onerror=alert(1)>\"'";
  json record = run_record({{"training", {{evil, evil}}}});
  record["resolved"].push_back({{"key", evil}, {"value", evil}, {"reason", evil}});
  for (const char* name : {"host", "program", "directory", "error"}) record[name] = evil;
  record["status"] = "failed", record["arguments"].push_back(evil), record["warnings"] = {evil};
  record["machine"]["cpu"] = record["run"]["family"] = record["run"]["start"] = evil;
  record["predicted"]["traffic"] = {{{"axes", evil}, {"collective", evil}, {"bytes", 1}, {"calls", 1}}};
  record["measured"]["collectives"] = {{{"name", evil}, {"bytes", 1}, {"calls", 1}, {"seconds", 1}}};
  json line = step_line(2, 1);
  line["nonfinite"] = line["spike"] = line["straggler"] = evil, line[evil] = 1;
  const std::string lines = step_lines(1) + line.dump() + "\n" +
                            json{{"step", 2}, {"sample_prompt", evil}, {"sample_text", evil}}.dump() + "\n";
  auto runs =
      read_run_folders({write_run_files(folder, "a", lines, record), write_run_files(folder, "b", lines, record)});
  for (RunFolder& run : runs) run.name = evil;
  for (const size_t count : {size_t{1}, size_t{2}}) {
    const std::string page = report_page(std::span(runs).first(count), {.title = evil});
    EXPECT_EQ(count_of(page, "<img"), 0u);
    EXPECT_EQ(count_of(page, "</script"), 2u);
    EXPECT_THAT(page, HasSubstr("<title>&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&quot;&#39;</title>"));
    EXPECT_EQ(data_in(page)["runs"][0]["name"], evil);
  }
}

TEST(Page, its_policy_lets_its_own_script_and_style_run_and_nothing_leave) {
  const TempFolder folder;
  const auto runs = read_run_folders({write_run_files(folder, "out", step_lines(2), run_record({}))});
  const std::string page = report_page(runs, {});
  EXPECT_THAT(page, HasSubstr("default-src 'none'; script-src 'nonce-"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe")));
  EXPECT_THAT(std::string(report_script()),
              Not(testing::AnyOf(HasSubstr("eval("), HasSubstr("innerHTML"), HasSubstr("Function("))));
  for (const char* request : {"src=\"http", "href=\"http", "url(\"", "url(h", "@import", "fetch("})
    EXPECT_EQ(count_of(page, request), 0u) << request;
  EXPECT_THAT(std::string(report_style()), HasSubstr("prefers-color-scheme: dark"));
}

TEST(Page, a_run_without_steps_has_a_page_without_curves) {
  const TempFolder folder;
  const auto runs = read_run_folders({write_run_files(folder, "out", "", run_record({}))});
  const std::string page = report_page(runs, {});
  EXPECT_THAT(page, HasSubstr("No step has been made yet."));
  EXPECT_TRUE(data_in(page).is_null());
}

TEST(Page, several_runs_begin_with_what_differs_between_them) {
  const TempFolder folder;
  const auto runs =
      read_run_folders({write_run_files(folder, "a", step_lines(2), run_record({{"training", {{"seed", 1}}}})),
                        write_run_files(folder, "b", step_lines(2), run_record({{"training", {{"seed", 2}}}}))});
  const std::string page = report_page(runs, {});
  EXPECT_LT(page.find("training.seed"), page.find("id=\"charts\""));
  EXPECT_THAT(differences_section(runs),
              HasSubstr("training.seed</th><td class=\"number\">1</td><td class=\"number\">2"));
  EXPECT_EQ(differences_section(std::span(runs).first(1)), "");
}

TEST(Page, shows_the_command_that_repeats_the_run_as_a_shell_takes_it) {
  const TempFolder folder;
  json record = run_record({});
  record["arguments"] = {"train", "run.json", "--set", "data.files=[\"a b\"]"};
  const auto runs = read_run_folders({write_run_files(folder, "a", step_lines(1), record)});
  EXPECT_THAT(settings_section(runs[0]),
              HasSubstr("nought train run.json --set &#39;data.files=[&quot;a b&quot;]&#39;"));
}

TEST(Page, loads_itself_again_where_that_is_asked_for) {
  const TempFolder folder;
  const auto runs = read_run_folders({write_run_files(folder, "a", step_lines(1), run_record({}))});
  EXPECT_EQ(data_in(report_page(runs, {.every = 10}))["every"], 10);
  EXPECT_EQ(data_in(report_page(runs, {}))["every"], 0);
}

}  // namespace
}  // namespace nought::page_test
