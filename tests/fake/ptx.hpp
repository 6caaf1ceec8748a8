/* PTX, NVIDIA's assembly language for virtual GPUs: what nvcc made of a kernel, read and run one
 * thread at a time on the fake device's threads (cuda-fake.cpp). So the code that runs is the
 * compiler's for a GPU, inline assembly and all, where the fake device otherwise runs what a host
 * compiler makes of the same text with __CUDA_ARCH__ undefined.
 *
 * Of the language there is what nvcc 13 uses for exec/cuda/kernels; a kernel with anything else is
 * reported when it is launched. Barriers and shuffles are the fake device's. Approximations
 * (ex2.approx, rcp.approx) are the exact result rounded, which is within their bounds. */
#pragma once
#include "tests/fake/simt.hpp"

#include <map>
#include <string>
#include <vector>

namespace fake
{

enum class Kind : uint8_t
{
  BITS,
  UNSIGNED,
  SIGNED,
  FLOAT,
  PREDICATE,
  PAIR_F16, /* two in one register */
  PAIR_BF16,
  PAIR_E4M3,
  PAIR_E5M2
};

struct PtxType
{
  Kind kind = Kind::BITS;
  uint8_t bytes = 0; /* 0: there is none */
};

enum class PtxSpace : uint8_t
{
  REGISTER, /* the address is in one */
  PARAMETERS,
  SHARED,
  LOCAL,
  UNKNOWN
};

/* Words of opcodes. */
enum PtxWord : uint32_t
{
  PTX_WIDE = 1,
  PTX_HI = 2,
  PTX_FTZ = 8,
  PTX_RZ = 16,
  PTX_RM = 32,
  PTX_RNI = 64,
  PTX_SAT = 128,
  PTX_SHARED = 512,
  PTX_OWN = 1024, /* memory of the thread's own */
  PTX_WARP = 2048,
  PTX_ADD = 4096,
  PTX_MAX = 8192,
  PTX_UNORDERED = 16384 /* a comparison that holds where there is no order */
};

/* Of an instruction: a register, a number, a place in memory, or several of these. */
struct PtxOperand
{
  enum
  {
    NONE,
    REGISTER,
    NUMBER,
    SPECIAL, /* %tid.x and the like, by `number` */
    SYMBOL,  /* the address of a variable */
    MEMORY,  /* at the register, or the symbol, plus `number` */
    VECTOR
  } form
      = NONE;
  bool is_negated = false; /* a predicate */
  int reg = -1;
  int second = -1; /* the predicate that a shuffle may write as well */
  uint64_t number = 0;
  std::string symbol;
  PtxSpace space = PtxSpace::REGISTER; /* that a symbol lies in, `number` bytes from its start */
  std::vector<PtxOperand> parts;
};

struct PtxInstruction
{
  std::string text;               /* for messages */
  std::vector<std::string> words; /* of the opcode, types left out */
  int code = 0;                   /* what it does: an index of ptx-run.cpp's table */
  char how[3] = "";               /* of a comparison or shuffle: two letters */
  uint32_t flags = 0;
  PtxType type, from; /* the last type, and the one before it */
  int vector = 1;
  int guard = -1; /* the predicate that it depends on; -1: none */
  bool is_guard_negated = false;
  size_t target = 0; /* of a branch */
  std::vector<PtxOperand> operands;

  bool
  has (uint32_t word) const
  {
    return flags & word;
  }
};

struct PtxParameter
{
  PtxType type; /* no bytes: a struct */
  size_t at = 0, bytes = 0;
};

struct PtxKernel
{
  std::string name;
  std::vector<PtxParameter> parameters;
  size_t parameter_bytes = 0, shared_bytes = 0, local_bytes = 0;
  int n_registers = 0;
  std::vector<PtxInstruction> code;
  std::map<std::string, size_t> parameter_at, shared_at, local_at;
  std::string missing; /* what it uses that is not there */
};

/* Adds the kernels of a file by their names as C++ has them, without namespaces. */
void ptx_read (const std::string &text, std::map<std::string, PtxKernel> &kernels);

/* The name in the source of a mangled one, without unnamed namespaces; "" if it is not mangled. */
std::string ptx_demangle (const char *mangled);

/* Finds the code of an instruction; -1: it is not there. */
int ptx_code (const PtxInstruction &instruction);

/* Runs one thread to its end. FALSE, with the reason in `why`, where it does something that is not
 * allowed. */
bool ptx_run (const PtxKernel &kernel, const uint8_t *parameters, uint8_t *shared,
              std::string &why);

}
