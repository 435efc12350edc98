#pragma once

// Switches between stacks within one thread. glibc's swapcontext makes a system call each time, and
// a test makes millions of switches.

#include <cstdint>

namespace oxibonsai::gpu::emulator {

// Prepares a stack such that the first switch to what this returns calls `entry`, which must not
// return. `end` is one past the stack.
void* make_fiber(uint8_t* end, void (*entry)());

// Leaves the current stack, whose place goes to *from, for `to`.
void switch_fiber(void** from, void* to);

}  // namespace oxibonsai::gpu::emulator
