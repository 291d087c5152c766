#include "cuda_emulation/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <new>

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace nought::emulation {

namespace {

constexpr size_t kGuardBytes = 65536;  // a page, whatever its size
thread_local Fiber* entering = nullptr;

}  // namespace

// swapcontext() asks the system for the signal mask at every switch; a barrier of 256 threads makes 512 of them.
#if defined(__x86_64__)

// Keeps the registers that belong to a caller on its stack, and its stack pointer in *from.
extern "C" void nought_emulation_switch(void** from, void* to);
asm(R"(
.text
.type nought_emulation_switch,@function
.globl nought_emulation_switch
nought_emulation_switch:
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
.size nought_emulation_switch,.-nought_emulation_switch
)");

struct Fiber::Switch {
  void *own = nullptr, *caller = nullptr;
  void prepare(std::byte* stack, size_t bytes) {
    auto** const top = reinterpret_cast<void**>(stack + bytes);
    top[-1] = nullptr;  // nobody to return to
    top[-2] = reinterpret_cast<void*>(&Fiber::enter);
    for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
    own = top - 8;
  }
  void go() { nought_emulation_switch(&caller, own); }
  void leave() { nought_emulation_switch(&own, caller); }
};

#else

struct Fiber::Switch {
  ucontext_t own{}, caller{};
  void prepare(std::byte* stack, size_t bytes) {
    getcontext(&own);
    own.uc_stack.ss_sp = stack;
    own.uc_stack.ss_size = bytes;
    makecontext(&own, &Fiber::enter, 0);
  }
  void go() { swapcontext(&caller, &own); }
  void leave() { swapcontext(&own, &caller); }
};

#endif

Fiber::Fiber() : switch_(new Switch) {
  void* const mapped = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  if (mapped == MAP_FAILED || mprotect(mapped, kGuardBytes, PROT_NONE) != 0) throw std::bad_alloc();
  stack_ = static_cast<std::byte*>(mapped) + kGuardBytes;
}

Fiber::~Fiber() {
  munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
  delete switch_;
}

void Fiber::start(void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  ended_ = false;
  switch_->prepare(stack_, kStackBytes);
}

bool Fiber::resume() {
  entering = this;
  switch_->go();
  return !ended_;
}

void Fiber::pause() { switch_->leave(); }

void Fiber::enter() {
  Fiber* const self = entering;
  self->body_(self->argument_);
  self->ended_ = true;
  self->switch_->leave();
  std::abort();  // nobody resumes what has ended
}

}  // namespace nought::emulation
