#include "nought/report/drawings.h"

#include "run_files.h"
#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/plan/svg.h"

namespace nought::drawings_test {
namespace {

using nlohmann::json;
using test::run_record;
using test::step_line;
using test::step_lines;
using test::TempFolder;
using test::write_run_files;
using testing::HasSubstr;
using testing::Not;

/// Throws if it is no XML.
boost::property_tree::ptree parsed(const std::string& svg) {
  std::istringstream stream(svg);
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(stream, tree);
  return tree;
}

TEST(Drawings, every_chart_is_a_file_of_its_own) {
  const TempFolder folder;
  const auto runs = read_run_folders({write_run_files(folder, "out", step_lines(9), run_record({}))});
  std::vector<std::string> files;
  for (const DrawnChart& chart : draw_report(runs)) {
    files.push_back(chart.file);
    EXPECT_EQ(parsed(chart.svg).count("svg"), 1u) << chart.file;
  }
  EXPECT_THAT(files, testing::IsSupersetOf({"loss.svg", "lr.svg", "grad_norm.svg", "mfu.svg", "memory.svg"}));
}

TEST(Drawings, several_in_one_document_stand_below_each_other) {
  const std::string svg = to_svg({{100, 30, svg_line(0, 0, 1, 1, "")}, {200, 50, svg_rectangle(1, 2, 3, 4, "red")}});
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 200 80\""));
  EXPECT_THAT(svg, HasSubstr("<g transform=\"translate(0 30)\">\n<rect x=\"1.0\""));
  EXPECT_EQ(parsed(svg).count("svg"), 1u);
}

TEST(Drawings, points_stand_where_their_numbers_are) {
  const TempFolder folder;
  const std::string lines =
      step_line(1, 4).dump() + "\n" + step_line(2, 2).dump() + "\n" + step_line(3, 0).dump() + "\n";
  const auto runs = read_run_folders({write_run_files(folder, "out", lines, run_record({}))});
  const auto charts = draw_report(runs);
  const std::string svg = charts.at(0).svg;  // losses from 0 to 4 with a room of 0.2, steps from 1 to 3
  const double room = (300.0 - 52) * 0.2 / 4.4;
  EXPECT_THAT(svg, HasSubstr(fmt::format("M70.0 {:.1f}L389.0 176.0L708.0 {:.1f}", 52 + room, 300 - room)));
  EXPECT_THAT(charts.back().svg, HasSubstr("1.00 KiB"));
}

TEST(Drawings, nothing_that_comes_from_a_run_is_markup_or_a_path) {
  const TempFolder folder;
  json line = step_line(2, 1);
  line["../<x>&\""] = 5, line["a b"] = 1, line["a_b"] = 2;
  const std::string name = "</svg><img src=x>&";
  const std::string lines = step_line(1, 2).dump() + "\n" + line.dump() + "\n";
  const auto make = [&](const std::string& run) {
    std::filesystem::create_directories(folder / "runs");
    return write_run_files(folder, run, lines, run_record({}));
  };
  auto runs = read_run_folders({make("a"), make("b")});
  runs[0].name = name;
  std::set<std::string> files;
  for (const DrawnChart& chart : draw_report(runs)) {
    EXPECT_TRUE(files.insert(chart.file).second) << chart.file;
    EXPECT_THAT(chart.file, testing::MatchesRegex("[A-Za-z0-9_-]+\\.svg"));
    EXPECT_THAT(chart.svg, Not(HasSubstr("<img")));
    EXPECT_EQ(parsed(chart.svg).count("svg"), 1u);
  }
  EXPECT_TRUE(files.contains("a_b.svg"));
  EXPECT_TRUE(files.contains("a_b_2.svg"));
}

TEST(Drawings, numbers_that_are_not_finite_leave_a_gap) {
  const TempFolder folder;
  json line = step_line(2, 1);
  line["loss"] = nullptr;
  const std::string lines = step_line(1, 2).dump() + "\n" + line.dump() + "\n" + step_line(3, 2).dump() + "\n" +
                            step_line(4, 1).dump() + "\n";
  const auto charts = draw_report(read_run_folders({write_run_files(folder, "out", lines, run_record({}))}));
  EXPECT_THAT(charts.at(0).svg, testing::ContainsRegex("M70\\.0 [0-9.]+M[0-9.]+ [0-9.]+L708\\.0"));
  EXPECT_THAT(charts.at(0).svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace nought::drawings_test
