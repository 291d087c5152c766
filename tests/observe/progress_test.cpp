#include "nought/observe/progress.h"

#include <algorithm>
#include <sstream>

#include "support/printed.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/lines.h"

namespace nought::progress_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// What a printer of a run of 10 steps says; it logs every fifth.
template <class F>
std::string said(F&& f, int columns = 0) {
  return test::printed([&](std::FILE* out) {
    ProgressPrinter printer(out, [=] { return columns; }, 5, {.memory = {RankMemory{}}, .seconds = 0.5});
    f(printer);
  });
}

RunSummary summary_of(int64_t first_step = 0) {
  RunSummary summary;
  summary.family = "llama", summary.start = "random weights from seed 1", summary.dtype = "bf16";
  summary.tokenizer = "bytes";
  summary.world_size = 2, summary.zero_stage = 3;
  summary.first_step = first_step, summary.max_steps = 10;
  summary.notes = {"something to know"};
  return summary;
}

StepReport report_of(int64_t step) {
  return {.step = step, .loss = 2.5, .grad_norm = 0.75, .lr = 1e-3, .seconds = 1, .tokens_per_second = 1500};
}

TEST(Progress, begins_with_what_the_run_is) {
  const std::string text = said([](ProgressPrinter& printer) { printer.on_start(summary_of()); });
  for (const char* fact : {"note: something to know\n", "llama", "bf16", "random weights from seed 1",
                           "tokenizer bytes", "2 ranks", "ZeRO stage 3"})
    EXPECT_THAT(text, HasSubstr(fact));
  EXPECT_THAT(text, Not(HasSubstr("resume")));
  EXPECT_THAT(said([](ProgressPrinter& printer) { printer.on_start(summary_of(4)); }), HasSubstr("after step 4"));
}

TEST(Progress, has_a_line_for_the_first_the_last_and_every_so_many_steps) {
  const std::string text = said([](ProgressPrinter& printer) {
    printer.on_start(summary_of());
    for (int64_t step = 1; step <= 10; ++step) printer.on_step(report_of(step));
  });
  for (const int step : {1, 5, 10}) EXPECT_THAT(text, HasSubstr(fmt::format("step {:>5}/10  loss 2.5000", step)));
  for (const int step : {2, 4, 9}) EXPECT_THAT(text, Not(HasSubstr(fmt::format("step {:>5}/10", step))));
  const std::string live = said(
      [](ProgressPrinter& printer) {
        printer.on_start(summary_of());
        for (int64_t step = 1; step <= 2; ++step) printer.on_step(report_of(step));
      },
      100);
  EXPECT_THAT(live, HasSubstr("\r\x1b[Kstep     2/10")) << "a terminal sees every step, in place";
}

TEST(Progress, a_step_that_is_skipped_says_why) {
  StepReport overflow = report_of(2), nonfinite = report_of(3);
  overflow.skipped = nonfinite.skipped = true;
  overflow.loss_scale = 1024, overflow.next_loss_scale = 512, overflow.skipped_so_far = 1;
  nonfinite.nonfinite = "step 3: the loss is nan", nonfinite.skipped_so_far = 2;
  const std::string text = said([&](ProgressPrinter& printer) {
    printer.on_start(summary_of());
    printer.on_step(overflow);
    printer.on_step(nonfinite);
  });
  EXPECT_THAT(text, HasSubstr("OVERFLOW at loss scale 1024: the update is skipped (1 so far), the scale is 512 now"));
  EXPECT_THAT(text, HasSubstr("step 3: the loss is nan: the update is skipped (2 so far)\n"));
}

TEST(Progress, a_spike_and_a_slow_rank_are_told_between_the_lines_of_steps) {
  StepReport spike = report_of(2), slow = report_of(3);
  spike.spike = "step 2: the loss is 90";
  slow.ranks = RankComparison{.steps = 1, .forward = {}, .backward = {}, .communication = {}, .data = {}};
  slow.ranks->warning = "rank 1 on node2";
  const std::string text = said([&](ProgressPrinter& printer) {
    printer.on_start(summary_of());
    printer.on_step(spike);
    printer.on_step(slow);
  });
  EXPECT_THAT(text, HasSubstr("spike   step 2: the loss is 90\nslow    rank 1 on node2\n"));
}

TEST(Progress, shows_what_is_asked_for_below_the_step) {
  StepReport report = report_of(1);
  report.breakdown =
      StepBreakdown{.forward = 0.001, .backward = 0.002, .optimizer = 0.003, .communication = 0.004, .exposed = 0.001};
  report.memory = PhaseMemory{.forward = 2048, .backward = 1024, .update = 512};
  report.experts.chosen = {{3, 1}};
  report.experts.dropped = 1;
  const TraceEvent::Clock::time_point begin{};
  report.collectives = {
      {TraceEventKind::collective, "all_gather", begin, begin + std::chrono::milliseconds(1), 1 << 20}};
  const std::string text = said([&](ProgressPrinter& printer) {
    printer.on_start(summary_of());
    printer.on_step(report);
  });
  EXPECT_THAT(text, HasSubstr("forward 1 ms  backward 2 ms  optimizer 3 ms  communication 4 ms, 75% of it hidden"));
  EXPECT_THAT(text, HasSubstr("memory in use after forward 2.00 KiB, backward 1.00 KiB, update 512 B"));
  EXPECT_THAT(text, AllOf(HasSubstr("busiest expert 1.50x"), HasSubstr("dropped 25.0%")));
  EXPECT_THAT(text, HasSubstr("comm    all_gather 1.00 MiB in 1.000 ms, 1000.0 MiB/s"));
}

/// The columns of the widest line.
int widest(const std::string& text) {
  int columns = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) columns = std::max(columns, columns_of(line));
  return columns;
}

TEST(Progress, the_step_line_fits_and_loses_what_matters_least) {
  StepReport report = report_of(20);
  report.mfu = 0.614, report.experts.chosen = {{3, 1}}, report.experts.dropped = 1;
  const auto line = [&](int width) { return step_line(report, 600, 203, width); };
  EXPECT_EQ(line(0),
            "step    20/600  loss 2.5000  grad norm 0.750  lr 1.00e-03  busiest expert 1.50x  dropped 25.0%   1.50K "
            "tokens/s  MFU 61.4%  ETA 3m23s");
  EXPECT_EQ(line(40), "step    20/600  loss 2.5000  ETA 3m23s");
  EXPECT_EQ(line(80), "step    20/600  loss 2.5000  grad norm 0.750   1.50K tokens/s  ETA 3m23s");
  EXPECT_THAT(line(120), AllOf(HasSubstr("busiest expert"), HasSubstr("MFU"), Not(HasSubstr("lr "))));
  for (const int width : {40, 80, 120}) EXPECT_LE(columns_of(line(width)), width);
  report.experts = {};
  EXPECT_LE(columns_of(line(0)), 100) << "a dense model's line loses nothing at 100 columns";
}

TEST(Progress, the_breakdown_fits) {
  const StepBreakdown times{.forward = 0.1234, .backward = 0.2346, .optimizer = 0.03456, .communication = 1.5};
  EXPECT_EQ(breakdown_line(times, 0),
            "      forward 123 ms  backward 235 ms  optimizer 34.6 ms  communication 1.5 s, 100% of it hidden");
  StepBreakdown offloaded = times;
  offloaded.offload = 2, offloaded.offload_exposed = 0.5;
  EXPECT_THAT(breakdown_line(offloaded, 0), HasSubstr("hidden  offload 2 s, 75% of it hidden"));
  offloaded.offload_exposed = 3;
  EXPECT_EQ(offloaded.offload_hidden(), 0) << "an update that is waited for computes, too";
  EXPECT_THAT(breakdown_line(times, 80), AllOf(HasSubstr("communication"), Not(HasSubstr("optimizer"))));
  EXPECT_EQ(breakdown_line(times, 40), "      forward 123 ms  backward 235 ms");
  for (const int width : {40, 80, 120}) EXPECT_LE(columns_of(breakdown_line(times, width)), width);
}

TEST(Progress, whatever_is_printed_fits_the_terminal) {
  StepReport report = report_of(10);
  report.memory = PhaseMemory{.forward = 2048 << 10, .backward = 1024 << 10, .update = 512 << 10};
  report.profile.emplace();
  report.profile->step = 10, report.profile->seconds = 1;
  for (const int width : {40, 80, 120}) {
    const std::string text = said(
        [&](ProgressPrinter& printer) {
          RunSummary summary = summary_of(4);
          summary.peak_name = "fp32 FMA on AVX-512";
          printer.on_start(summary);
          printer.on_step(report);
          printer.on_validation(10, {.loss = 1, .targets = 4, .text_bytes = 8});
          printer.on_collectives({{"reduce_scatter", 1 << 20, 4, 0.002}});
          printer.on_finish(std::vector<RankMemory>(16), "out");
        },
        width);
    EXPECT_LE(widest(text), width) << text;
  }
}

TEST(Progress, a_profile_is_shown_or_its_file_is_named) {
  StepReport report = report_of(2);
  report.profile.emplace();
  report.profile->step = 2, report.profile->seconds = 1;
  const auto text = [&] {
    return said([&](ProgressPrinter& printer) {
      printer.on_start(summary_of());
      printer.on_step(report);
    });
  };
  EXPECT_THAT(text(), HasSubstr("profile of step 2 on rank 0"));
  report.profile->options.output_file = "p.txt";
  EXPECT_THAT(text(), AllOf(HasSubstr("profile of step 2 in p.txt\n"), Not(HasSubstr("on rank 0"))));
}

TEST(Progress, ends_with_the_predicted_time_of_a_step_beside_the_measured_one) {
  const std::string text = said([](ProgressPrinter& printer) {
    printer.on_start(summary_of());
    for (const double seconds : {9.0, 0.75, 0.625}) {
      StepReport report = report_of(1);
      report.seconds = seconds;
      printer.on_step(report);
    }
    printer.on_finish(std::vector<RankMemory>(1), "out");
  });
  EXPECT_THAT(text,
              HasSubstr("\nstep    500 ms predicted, 750 ms measured (median; half of the steps 625 ms to 750 ms)\n"));
}

TEST(Progress, has_no_time_left_before_five_steps_have_told_it) {
  const std::string text = test::printed([](std::FILE* out) {
    ProgressPrinter printer(out, [] { return 0; }, 1, {});
    printer.on_start(summary_of());
    for (int64_t step = 1; step <= 10; ++step) printer.on_step(report_of(step));
  });
  for (int64_t step = 1; step <= 4; ++step) EXPECT_THAT(text, ContainsRegex(fmt::format("step +{}/10 .*ETA -", step)));
  EXPECT_THAT(text, ContainsRegex("step +5/10 .*ETA 5s"));
  EXPECT_THAT(text, ContainsRegex("step +10/10 .*ETA 0s"));
}

TEST(Progress, is_quiet_about_steps_alone_when_it_is_asked_to_be) {
  StepReport skipped = report_of(2);
  skipped.spike = "loss 9";
  const std::string text = said([&](ProgressPrinter& printer) {
    printer.set_quiet();
    printer.on_start(summary_of());
    printer.on_step(report_of(1));
    printer.on_step(skipped);
    printer.on_checkpoint({.path = "out/checkpoint-2"});
  });
  EXPECT_THAT(text, Not(HasSubstr("step     1/10")));
  EXPECT_THAT(text, AllOf(HasSubstr("model   llama"), HasSubstr("spike   loss 9"), HasSubstr("saved   out")));
}

TEST(Progress, ends_with_what_was_hidden_and_with_what_kept_the_rest) {
  StepReport report = report_of(1);
  report.breakdown = StepBreakdown{.communication = 4, .exposed = 1, .offload = 2, .offload_exposed = 1.5};
  const std::string text = said([&](ProgressPrinter& printer) {
    printer.set_update_order("updates wait for the backward pass: clipping");
    printer.on_start(summary_of());
    printer.on_step(report);
    printer.on_step(report);
    printer.on_finish(std::vector<RankMemory>(1), "out");
  });
  EXPECT_THAT(text, HasSubstr("\nhidden  75% of 8 s of communication\n"));
  EXPECT_THAT(text, HasSubstr("\nhidden  25% of 4 s of reads and writes of files\n"));
  EXPECT_THAT(text, HasSubstr("\nhidden  updates wait for the backward pass: clipping\n"));
}

TEST(Progress, a_run_that_has_made_all_its_steps_says_how_to_go_on) {
  const auto begin_after = [](int64_t step) {
    return said([&](ProgressPrinter& printer) { printer.on_start(summary_of(step)); });
  };
  EXPECT_THAT(begin_after(10),
              HasSubstr("after step 10, the last one: --set training.max_steps=N goes on to step N\n"));
  EXPECT_THAT(begin_after(9), HasSubstr("after step 9\n"));
}

TEST(Progress, an_interruption_says_what_is_saved_and_how_to_go_on) {
  const std::string text = said([](ProgressPrinter& printer) {
    printer.on_start(summary_of());
    printer.on_interrupt(62, "out/checkpoint-62");
  });
  EXPECT_THAT(text, HasSubstr("\ninterrupted after step 62; saved out/checkpoint-62; continue with --resume\n"));
}

TEST(Progress, a_sample_is_one_line_whatever_its_text) {
  const std::string text = said([](ProgressPrinter& printer) {
    printer.on_start(summary_of());
    printer.on_sample(5, "Once", " upon\na \"time\" \x80\x1b[K");
    printer.on_best({.step = 4, .value = 1.25}, "out/checkpoint-4");
  });
  EXPECT_THAT(text, HasSubstr("step     5/10  sample  \"Once\" -> \" upon\\na \\\"time\\\" \xEF\xBF\xBD\\u001b[K\"\n"));
  EXPECT_THAT(text, HasSubstr("best    out/checkpoint-4 with eval_loss 1.2500: its weights are exported\n"));
}

TEST(Progress, collectives_are_a_table) {
  const std::string text = said([](ProgressPrinter& printer) {
    printer.on_collectives({{"all_gather", 1 << 20, 4, 0.002}, {"reduce_scatter", 2048, 1, 0.001}});
  });
  EXPECT_THAT(text, ContainsRegex("\nall_gather +1.00 MiB +4 +2.0 ms +0.500 ms +"));
  EXPECT_THAT(text, HasSubstr("\nreduce_scatter "));
}

TEST(Progress, ends_with_what_was_written_and_what_each_rank_held) {
  const std::string text = said([](ProgressPrinter& printer) {
    printer.on_start(summary_of(4));
    printer.on_checkpoint({.path = "out/checkpoint-10"});
    printer.on_validation(10, {.loss = 1});
    printer.on_finish({RankMemory{}, RankMemory{}}, "out");
  });
  for (const char* fact : {"saved   out/checkpoint-10\n", "validation loss 1.0000  perplexity 2.718", "wrote   out ",
                           "trained 6 steps", "predicted", "rank 1"})
    EXPECT_THAT(text, HasSubstr(fact));
}

TEST(Progress, says_whether_a_model_or_an_adapter_was_written) {
  const test::TempFolder folder;
  const auto written = [&] {
    return said([&](ProgressPrinter& printer) {
      printer.on_start(summary_of(4));
      printer.on_finish({RankMemory{}}, folder.path());
    });
  };
  EXPECT_THAT(written(), HasSubstr("(Hugging Face config.json and safetensors)"));
  folder.write("adapter_config.json", "{}");
  EXPECT_THAT(written(), HasSubstr("(an adapter, as peft has it)"));
}

TEST(Progress, an_evaluation_has_bits_per_byte_where_bytes_are_known) {
  EXPECT_EQ(describe({.loss = 0}), "perplexity 1  0.0000 bits per token");
  const Evaluation known{.loss = 1, .targets = 4, .text_bytes = 8};
  EXPECT_THAT(describe(known), HasSubstr(fmt::format("{:.4f} bits per byte", known.bits_per_byte())));
}

}  // namespace
}  // namespace nought::progress_test
