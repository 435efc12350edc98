#include "gpu/emulator/fiber.h"

#include <cstring>

// The registers that a function must keep go on the old stack and come from the new one; the return
// address is what a call leaves there.
#if defined(__x86_64__)
__asm__(R"(
.text
.globl oxibonsai_switch_fiber
.type oxibonsai_switch_fiber, @function
oxibonsai_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size oxibonsai_switch_fiber, . - oxibonsai_switch_fiber
)");
constexpr int kSaved = 6;    // registers
constexpr int kAddress = 6;  // which word of a saved frame is the return address
#elif defined(__aarch64__)
__asm__(R"(
.text
.globl oxibonsai_switch_fiber
.type oxibonsai_switch_fiber, %function
oxibonsai_switch_fiber:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size oxibonsai_switch_fiber, . - oxibonsai_switch_fiber
)");
constexpr int kSaved = 20;
constexpr int kAddress = 11;
#else
#error "the emulator has no fibers for this processor"
#endif

extern "C" void oxibonsai_switch_fiber(void** from, void* to);

namespace oxibonsai::gpu::emulator {

void* make_fiber(uint8_t* end, void (*entry)()) {
  // At the entry of a function the stack is 16 bytes aligned, but for a return address on x86-64.
  constexpr int kWords = kAddress == kSaved ? kSaved + 2 : kSaved;
  auto* top = reinterpret_cast<uint64_t*>(reinterpret_cast<uintptr_t>(end) / 16 * 16);
  uint64_t* frame = top - kWords;
  std::memset(frame, 0, kWords * sizeof(uint64_t));
  frame[kAddress] = reinterpret_cast<uint64_t>(entry);
  return frame;
}

void switch_fiber(void** from, void* to) { oxibonsai_switch_fiber(from, to); }

}  // namespace oxibonsai::gpu::emulator
