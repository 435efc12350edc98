#include "cpu/profiler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "quant/quant_type.h"

namespace oxibonsai::cpu {
namespace {

// Which row of the times is this thread's. With more threads than rows some share one.
size_t own_index() {
  static std::atomic<size_t> count{0};
  thread_local const size_t index = count++;
  return index;
}

std::string types_of(const graph::Weights& weights) {
  std::set<std::string> names;
  for (const graph::WeightPtr& w : weights) names.insert(quant::traits(w->type()).name);
  std::string all;
  for (const std::string& name : names) all += all.empty() ? name : "+" + name;
  return all;
}

// A row of the result goes through each matrix; of experts, through one, and of the matrices of
// heads, through all.
int64_t multiply_adds_of_row(const graph::Op& op) {
  int64_t sum = 0;
  for (const graph::WeightPtr& w : graph::matrices_of(op)) sum += w->rows() * w->cols();
  if (const auto* heads = std::get_if<graph::HeadLinear>(&op)) sum *= heads->weight->experts();
  return sum;
}

int64_t rows_of_result(const graph::LoweredGraph& graph, const Step& step, const graph::Op& op) {
  const graph::ValueId id = graph::outputs_of(op).front();
  const int buffer = graph.buffer_of[static_cast<size_t>(id)];
  return step.rows[static_cast<size_t>(graph.space_of[static_cast<size_t>(buffer)])];
}

}  // namespace

OpClocks::OpClocks(size_t ops, int threads)
    : ops_(ops),
      threads_(static_cast<size_t>(threads)),
      nanoseconds_(new std::atomic<int64_t>[ops_ * threads_]()) {}

void OpClocks::add(size_t op, Clock::duration time) {
  const int64_t count = std::chrono::nanoseconds(time).count();
  nanoseconds_[own_index() % threads_ * ops_ + op].fetch_add(count, std::memory_order_relaxed);
}

double OpClocks::seconds(size_t op) const {
  int64_t sum = 0;
  for (size_t i = 0; i < threads_; ++i)
    sum += nanoseconds_[i * ops_ + op].load(std::memory_order_relaxed);
  return 1e-9 * static_cast<double>(sum);
}

void Profiler::start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  times_.clear();
  is_on_ = true;
}

std::vector<OpTime> Profiler::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_on_) throw RequestError("end_profile() without start_profile()");
  is_on_ = false;
  return std::exchange(times_, {});
}

void Profiler::add(const graph::LoweredGraph& graph, const Step& step, const OpClocks& clocks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_on_) return;  // ended meanwhile
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const graph::Op& op = graph.ops[i];
    if (std::holds_alternative<graph::Input>(op)) continue;  // there is nothing to run
    const graph::Weights weights = graph::matrices_of(op);
    OpTime& time = entry(graph::name_of(op), types_of(weights));
    ++time.runs;
    time.seconds += clocks.seconds(i);
    if (!weights.empty())
      time.multiply_adds += rows_of_result(graph, step, op) * multiply_adds_of_row(op);
  }
}

OpTime& Profiler::entry(const std::string& op, const std::string& weights) {
  const auto found = std::find_if(times_.begin(), times_.end(), [&](const OpTime& t) {
    return t.op == op && t.weights == weights;
  });
  if (found != times_.end()) return *found;
  times_.push_back({op, weights});
  return times_.back();
}

}  // namespace oxibonsai::cpu
