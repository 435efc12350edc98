#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace oxibonsai {

// Memory that a file is mapped to, kept readable. Where a file is cut while it is mapped, or its
// disk fails, a read beyond its end raises SIGBUS, which ends the process: the server and all of
// its models, in whichever thread and language the read was. For guarded memory a signal handler
// puts zeros there instead, and is_lost() says so to whoever uses what was read.
//
// Other reasons for SIGBUS go to the handler that was there before the first guard.
class BusGuard {
 public:
  // `owner` is what find() gives for these bytes.
  BusGuard(const void* data, size_t bytes, const void* owner);
  ~BusGuard();
  BusGuard(const BusGuard&) = delete;
  BusGuard& operator=(const BusGuard&) = delete;

  // Whether zeros have been read in place of the file's bytes.
  bool is_lost() const;

  // The owner of guarded memory; null where these bytes are in none.
  static const void* find(const void* data);

  struct Range;

 private:
  Range* const range_;
};

}  // namespace oxibonsai
