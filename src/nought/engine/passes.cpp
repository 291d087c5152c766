#include "nought/engine/passes.h"

#include <utility>

#include "nought/comm/flight_recorder.h"

namespace nought {

Passes::Passes(ShardedModel& model, const StepSchedule& schedule, std::span<const Batch> batches,
               const Options& options)
    : model_(model), schedule_(schedule), batches_(batches), options_(options), chunks_(model.model().chunks()) {
  require(schedule_.chunks() == static_cast<int64_t>(chunks_.size()),
          "schedule {} is for {} chunks of a model that has {} here", schedule_, schedule_.chunks(), chunks_.size());
  micro_batches_.resize(batches_.size());
  states_.resize(batches_.size() * chunks_.size());
}

std::vector<UnitPass> Passes::order() const {
  struct Walk {
    std::vector<UnitPass> forth, back;
  };
  std::vector<Walk> walks;
  for (const Chunk& chunk : chunks_)
    walks.push_back(
        {model_.model().passes(/*backward=*/false, chunk), model_.model().passes(/*backward=*/true, chunk)});
  std::vector<UnitPass> order;
  for (const Instruction& each : schedule_.instructions()) {
    if (each.action != Action::forward && each.action != Action::backward) continue;
    const Walk& walk = walks[static_cast<size_t>(each.chunk)];
    const std::vector<UnitPass>& passes = each.action == Action::backward ? walk.back : walk.forth;
    order.insert(order.end(), passes.begin(), passes.end());
  }
  return order;
}

Passes::ChunkState& Passes::state_of(const Instruction& at) {
  return states_[static_cast<size_t>(at.micro_batch) * chunks_.size() + static_cast<size_t>(at.chunk)];
}

MicroBatch& Passes::micro_batch_of(const Instruction& at) {
  const auto index = static_cast<size_t>(at.micro_batch);
  if (!micro_batches_[index]) {
    const bool walks_back = schedule_.walks_back(at.micro_batch);
    const bool last = at.micro_batch == schedule_.last(), deferred = schedule_.defers(at.micro_batch);
    for (int64_t chunk = 1; chunk < schedule_.chunks(); ++chunk)
      require(last == (at.micro_batch == schedule_.last(chunk)) && deferred == schedule_.defers(at.micro_batch, chunk),
              "schedule {}: the chunks of micro-batch {} differ in what comes last, or in what is deferred", schedule_,
              at.micro_batch);
    micro_batches_[index] =
        std::make_unique<MicroBatch>(model_, batches_[index],
                                     MicroBatch::Options{.gradient_scale = walks_back ? options_.gradient_scale : 1,
                                                         .recording = walks_back,
                                                         .last = last,
                                                         .deferred = deferred,
                                                         .context = options_.context});
  }
  return *micro_batches_[index];
}

void Passes::run(size_t place) {
  const Instruction& at = schedule_.instructions()[place];
  switch (at.action) {
    case Action::forward:
      receive_ahead(place);
      forward(at);
      break;
    case Action::backward:
      receive_ahead(place);
      backward(at);
      break;
    case Action::weight_gradients:
      receive_ahead(place);
      form_weight_gradients(at);
      break;
    case Action::receive_activation:
    case Action::receive_gradient:
      if (place >= received_) receive(at), received_ = place + 1;
      break;
    case Action::send_activation:
    case Action::send_gradient:
      send(at);
      break;
    case Action::reduce:
    case Action::update:
      fail("schedule {}: its reduction is no pass", schedule_);
  }
  if (schedule_.end_of(at.micro_batch) == static_cast<int64_t>(place))
    micro_batches_[static_cast<size_t>(at.micro_batch)] = nullptr;
  const std::vector<Instruction>& list = schedule_.instructions();
  if (place + 1 == list.size() || !has_micro_batch(list[place + 1].action))
    for (const auto& [to, messages] : sent_) await_sent(to, 0);
}

void Passes::receive_ahead(size_t place) {
  const std::vector<Instruction>& list = schedule_.instructions();
  received_ = std::max(received_, place + 1);
  for (; received_ < list.size() && !is_pass(list[received_].action); ++received_)
    if (receives(list[received_].action)) receive(list[received_]);
}

void Passes::receive(const Instruction& at) {
  const Chunk& chunk = chunk_of(at);
  const bool activation = at.action == Action::receive_activation;
  if (!activation && !chunk.trained) return;  // nobody sends it
  const std::string name = name_of(at);
  const FlightSubject subject(model_.mesh().world(), name);
  Message& message = activation ? state_of(at).x : state_of(at).d_result;
  message.values = micro_batch_of(at).make_hidden();
  message.arrival = model_.mesh().receive(message.values, activation ? chunk.from : chunk.to);
}

void Passes::send(const Instruction& at) {
  const Chunk& chunk = chunk_of(at);
  const bool activation = at.action == Action::send_activation;
  Tensor values = std::exchange(activation ? state_of(at).result : state_of(at).d_x, {});
  if (!values) return;  // the gradient of what nobody wants
  const int to = activation ? chunk.to : chunk.from;
  await_sent(to, static_cast<size_t>(schedule_.message_room()));
  const std::string name = name_of(at);
  const FlightSubject subject(model_.mesh().world(), name);
  const Event event = model_.mesh().send(values, to);
  sent_[to].push_back({std::move(values), event});
}

void Passes::await_sent(int to, size_t left) {
  std::deque<Sent>& messages = sent_[to];
  for (; messages.size() > left; messages.pop_front())
    model_.mesh().world().wait(messages.front().event, *model_.context().stream);
}

std::string Passes::name_of(const Instruction& at) const {
  const bool activation = at.action == Action::receive_activation || at.action == Action::send_activation;
  return fmt::format("{} {}", activation ? "activation" : "gradient", at.micro_batch);
}

Timeline* Passes::timeline_of(const Instruction& at) const {
  const Mesh& mesh = model_.mesh();
  const bool in_step = schedule_.walks_back(at.micro_batch, at.chunk);
  return in_step && mesh.grid().size(Axis::pipeline) > 1 ? mesh.world().timeline() : nullptr;
}

Tensor Passes::take(Message& message, int from) {
  Message taken = std::exchange(message, {});
  if (taken.values && from != model_.mesh().coordinate(Axis::pipeline))
    model_.mesh().world().wait(taken.arrival, *model_.context().stream);
  return taken.values;
}

void Passes::forward(const Instruction& at) {
  const Chunk& chunk = chunk_of(at);
  MicroBatch& micro_batch = micro_batch_of(at);
  ChunkState& state = state_of(at);
  const Tensor x = chunk.first() ? Tensor() : take(state.x, chunk.from);
  const std::string name = at.str(schedule_.chunks());
  const TimedScope scope(timeline_of(at), TraceEventKind::pass, name);
  Tensor result = micro_batch.forward(static_cast<size_t>(at.chunk), chunk, x);
  if (chunk.last()) {
    const int64_t place =
        options_.loss_places.empty() ? 0 : options_.loss_places.at(static_cast<size_t>(at.micro_batch));
    if (options_.loss_sum) model_.context().run(AddTo{.x = result, .into = options_.loss_sum.flat(place, place + 1)});
  } else if (schedule_.has(Action::send_activation, at.micro_batch, at.chunk)) {
    state.result = std::move(result);
  } else {
    state_of({Action::forward, at.micro_batch, at.chunk + 1}).x.values = std::move(result);
  }
}

void Passes::backward(const Instruction& at) {
  const Chunk& chunk = chunk_of(at);
  ChunkState& state = state_of(at);
  Tensor d_result = chunk.last() ? Tensor() : take(state.d_result, chunk.to);
  const std::string name = at.str(schedule_.chunks());
  const TimedScope scope(timeline_of(at), TraceEventKind::pass, name);
  Tensor d_x = micro_batch_of(at).backward(static_cast<size_t>(at.chunk), std::move(d_result));
  if (chunk.first() || !d_x) return;
  if (schedule_.has(Action::send_gradient, at.micro_batch, at.chunk)) {
    state.d_x = std::move(d_x);
  } else {
    state_of({Action::backward, at.micro_batch, at.chunk - 1}).d_result.values = std::move(d_x);
  }
}

void Passes::form_weight_gradients(const Instruction& at) {
  const std::string name = at.str(schedule_.chunks());
  const TimedScope scope(timeline_of(at), TraceEventKind::pass, name);
  micro_batch_of(at).form_weight_gradients(static_cast<size_t>(at.chunk));
}

}  // namespace nought
