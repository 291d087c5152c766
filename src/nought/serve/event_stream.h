// EventStream: the events of a text/event-stream (server-sent events), from pieces that are cut anywhere.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace nought {

class EventStream {
 public:
  /// Takes what comes next, and calls on_event with the data of each event that is whole with it. Comments, names and
  /// ids of events are passed over.
  void push(std::string_view piece, const std::function<void(const std::string& data)>& on_event);

 private:
  std::string line_, data_;
  bool has_data_ = false;
};

}  // namespace nought
