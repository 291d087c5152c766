// The live view of a run for a terminal: where it stands, loss and speed as sparklines, memory, slow ranks, what went
// wrong.
#pragma once

#include <span>
#include <string>

#include "nought/report/run_folder.h"

namespace nought {

/// The numbers in `columns` characters of eight heights, the last ones to the right; each is the mean of its stretch.
/// Where there is no number there is a space.
std::string sparkline(std::span<const double> values, int columns);

/// The view in at most `columns` x `rows` characters. Of a list that finds no room the last entries stay.
std::string live_view(const RunFolder& run, int columns, int rows);

}  // namespace nought
