#include "nought/zero/live_units.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace nought {

LiveCount count_live(std::span<const int64_t> sizes, int64_t most) {
  LiveCount count;
  for (const int64_t size : sizes) {
    if (size > most - count.elements) break;
    ++count.units, count.elements += size;
  }
  return count;
}

LiveUnits::LiveUnits(const std::vector<std::unique_ptr<Unit>>& units, std::vector<int64_t> elements,
                     const LiveParameters& limits)
    : units_(units), elements_(std::move(elements)), limits_(limits), chosen_(units.size()), uses_(units.size()) {
  std::vector<size_t> by_size;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    if (elements_[unit] > 0) by_size.push_back(unit);
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return elements_[a] < elements_[b]; });
  for (const size_t unit : by_size) sizes_.push_back(elements_[unit]);
  const size_t count = count_live(sizes_, limits_.most).units;
  for (size_t i = 0; i < count; ++i) chosen_[by_size[i]] = true;
}

void LiveUnits::expect(std::span<const UnitPass> order) {
  for (std::vector<size_t>& places : uses_) places.clear();
  read_before_.clear();
  if (limits_.most == 0) return;
  int64_t read = 0;
  for (size_t place = 0; place < order.size(); ++place) {
    const Unit& unit = *units_[order[place].unit];
    read_before_.push_back(read);
    const auto use = [&](const Unit& each) {
      uses_[each.index()].push_back(place);
      read += elements_[each.index()];
    };
    use(unit);
    for (const Unit* other : unit.borrowed()) use(*other);
  }
}

bool LiveUnits::stays(size_t unit, size_t place) const {
  if (!chosen_[unit]) return false;
  const auto next = std::lower_bound(uses_[unit].begin(), uses_[unit].end(), place);
  return next != uses_[unit].end() && read_before_[*next] - read_before_[place] <= limits_.reuse_distance;
}

}  // namespace nought
