#include "cuda/graph_cache.h"

#include <algorithm>
#include <string_view>

namespace oxibonsai::cuda {
namespace {

// One for each number of sequences in a step, and some for longer contexts and drafts.
constexpr size_t kMostGraphs = 64;
constexpr size_t kMostHashes = 256;
// Other threads may allocate while this one captures.
constexpr int kCaptureThreadLocal = 1;

}  // namespace

void GraphCache::run(const std::string& key, const std::function<void()>& launch) {
  const size_t hash = std::hash<std::string_view>{}(key);
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Entry& e) { return e.hash == hash && e.key == key; });
  if (found != graphs_.end()) {
    graphs_.splice(graphs_.begin(), graphs_, found);
  } else {
    if (!refusal_.empty() || !came_before(hash)) return launch();
    GraphExecHandle* graph = capture(launch);
    if (graph == nullptr) return launch();
    graphs_.push_front({key, hash, graph});
    if (graphs_.size() > kMostGraphs) {
      driver_.cuGraphExecDestroy(graphs_.back().graph);
      graphs_.pop_back();
    }
  }
  driver_.check(driver_.cuGraphLaunch(graphs_.front().graph, stream_), "cuGraphLaunch");
}

void GraphCache::clear() {
  for (const Entry& e : graphs_) driver_.cuGraphExecDestroy(e.graph);
  graphs_.clear();
}

bool GraphCache::came_before(size_t hash) {
  const auto found = std::find(hashes_.begin(), hashes_.end(), hash);
  if (found != hashes_.end()) {
    hashes_.erase(found);
    return true;
  }
  hashes_.push_back(hash);
  if (hashes_.size() > kMostHashes) hashes_.pop_front();
  return false;
}

bool GraphCache::refuses(Result result, const char* call) {
  if (result == kSuccess) return false;
  refusal_ = std::string(call) + ": " + driver_.describe(result);
  return true;
}

// Launches while a graph is captured do nothing, so that those which follow a refusal are the
// first.
GraphExecHandle* GraphCache::capture(const std::function<void()>& launch) {
  const Driver& d = driver_;
  if (refuses(d.cuStreamBeginCapture_v2(stream_, kCaptureThreadLocal), "cuStreamBeginCapture"))
    return nullptr;
  GraphHandle* graph = nullptr;
  try {
    launch();
  } catch (const Error& e) {
    refusal_ = e.what();
  } catch (...) {
    if (d.cuStreamEndCapture(stream_, &graph) == kSuccess) d.cuGraphDestroy(graph);
    throw;
  }
  const bool broken = refuses(d.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  if (broken || !refusal_.empty()) {
    if (!broken && graph != nullptr) d.cuGraphDestroy(graph);
    return nullptr;
  }
  GraphExecHandle* runnable = nullptr;
  const Result result = d.cuGraphInstantiateWithFlags(&runnable, graph, 0);
  d.cuGraphDestroy(graph);
  return refuses(result, "cuGraphInstantiateWithFlags") ? nullptr : runnable;
}

}  // namespace oxibonsai::cuda
