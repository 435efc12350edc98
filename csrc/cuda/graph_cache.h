#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>

#include "cuda/driver.h"

namespace oxibonsai::cuda {

// CUDA graphs of launches that come again and again, as those of decoding do: a graph of hundreds
// of launches costs the host one call, and the card waits less between them.
//
// A graph is found by what describes its launches to the last byte, so it can't do anything but
// what they would: what changes from step to step (tokens, positions, page tables) lies in buffers,
// and where a count of rows or of parts of the context changes, the launches do and have a graph of
// their own. Those that came once only, as of most prompts, get none.
class GraphCache {
 public:
  // Of one stream, whose context is current in every call.
  GraphCache(const Driver& driver, StreamHandle* stream) : driver_(driver), stream_(stream) {}
  ~GraphCache() { clear(); }
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // Makes launches on the stream by calling `launch`, or by a graph of an earlier time. `key` has
  // all that makes them up. Where one can't be made, no others are any more: refusal() says why.
  void run(const std::string& key, const std::function<void()>& launch);
  void clear();
  const std::string& refusal() const { return refusal_; }  // empty: graphs are made

 private:
  struct Entry {
    std::string key;
    size_t hash;
    GraphExecHandle* graph;
  };

  bool came_before(size_t hash);
  // Null where the driver refuses, with the reason in refusal_.
  GraphExecHandle* capture(const std::function<void()>& launch);
  bool refuses(Result result, const char* call);

  const Driver& driver_;
  StreamHandle* const stream_;
  std::list<Entry> graphs_;    // the latest used first
  std::deque<size_t> hashes_;  // of keys that came once, the latest last
  std::string refusal_;
};

}  // namespace oxibonsai::cuda
