/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one thread of PTX. Registers have 64 bits, of which an instruction reads and writes as many
 * as its type has. */
#include "config.h"

#include "exec/number/number.h"
#include "tests/fake/device.hpp"
#include "tests/fake/ptx.hpp"

#include <cfenv>
#include <cmath>
#include <cstring>

#undef memcpy

extern "C"
{
#define HOOKS(bytes) \
  void __tsan_read##bytes (void *at); \
  void __tsan_write##bytes (void *at);
  HOOKS (1)
  HOOKS (2)
  HOOKS (4)
  HOOKS (8)
  HOOKS (16)
}

namespace fake
{

namespace
{

/* clang-format off */
#define CODES(X) \
  X (MOV, "mov") X (CVTA, "cvta") X (LD, "ld") X (ST, "st") X (CVT, "cvt") X (BRA, "bra") \
  X (RET, "ret") X (BAR, "bar") X (SHFL, "shfl") X (ATOM, "atom") X (PREFETCH, "prefetch") \
  X (SETP, "setp") X (SELP, "selp") X (AND, "and") X (OR, "or") X (XOR, "xor") X (NOT, "not") \
  X (SHL, "shl") X (SHR, "shr") X (ADD, "add") X (SUB, "sub") \
  X (MUL, "mul") X (MAD, "mad") X (DIV, "div") \
  X (REM, "rem") X (MIN, "min") X (MAX, "max") X (NEG, "neg") X (ABS, "abs") X (FMA, "fma") \
  X (RCP, "rcp") X (SQRT, "sqrt") X (EX2, "ex2") X (COPYSIGN, "copysign") X (PRMT, "prmt") \
  X (BFI, "bfi") X (CALL, "call")
#define ID(id, name) id,
#define NAME(id, name) name,
enum Code : int { CODES (ID) N_CODES };
const char *const code_names[N_CODES] = { CODES (NAME) };
/* clang-format on */

const uint64_t CANONICAL_NAN = 0x7fffffff; /* the NaN that arithmetic in fp32 makes */

uint64_t
low (uint64_t value, unsigned bytes)
{
  return bytes >= 8 ? value : value & ((UINT64_C (1) << 8 * bytes) - 1);
}

int64_t
extended (uint64_t value, unsigned bytes)
{
  const unsigned shift = 64 - 8 * bytes;

  return (int64_t)(value << shift) >> shift;
}

/* Copies bits into another type, as many as the smaller one has. */
template <typename To, typename From>
To
as (From from)
{
  To to = 0;

  __builtin_memcpy (&to, &from, sizeof from < sizeof to ? sizeof from : sizeof to);
  return to;
}

/* --- small formats ------------------------------------------------------------------------ */

/* The format of each half of a pair; PLAN_N_DTYPES: the kind is no pair. */
PlanDtype
format_of (Kind kind)
{
  return kind == Kind::PAIR_F16    ? PLAN_DTYPE_FP16
         : kind == Kind::PAIR_BF16 ? PLAN_DTYPE_BF16
         : kind == Kind::PAIR_E4M3 ? PLAN_DTYPE_E4M3
         : kind == Kind::PAIR_E5M2 ? PLAN_DTYPE_E5M2
                                   : PLAN_N_DTYPES;
}

/* Rounds to a format. Numbers that are too large become the largest one in 8 bits (satfinite),
 * infinity in other formats. */
uint64_t
narrow (PlanDtype format, float value)
{
  uint64_t bits = 0;

  if (format == PLAN_DTYPE_E4M3)
    return exec_number_to_e4m3 ((double)value);
  if (format == PLAN_DTYPE_E5M2)
    return exec_number_to_e5m2 ((double)value);
  exec_number_narrow (&bits, format, &value, 1);
  return bits;
}

float
widen (PlanDtype format, uint64_t bits)
{
  float value;

  if (format == PLAN_DTYPE_E4M3)
    return exec_number_from_e4m3 ((guint8)bits);
  if (format == PLAN_DTYPE_E5M2)
    return exec_number_from_e5m2 ((guint8)bits);
  exec_number_widen (&value, &bits, format, 1);
  return value;
}

/* --- a thread ----------------------------------------------------------------------------- */

struct Run
{
  const PtxKernel &kernel;
  const uint8_t *parameters;
  uint8_t *shared;
  std::vector<uint64_t> registers;
  std::vector<uint8_t> local;
  std::string &why;
  size_t next = 0;
  bool is_done = false, is_fine = true;

  uint64_t value (const PtxInstruction &i, const PtxOperand &operand);
  void set (const PtxOperand &operand, uint64_t value, unsigned bytes);
  uint8_t *address (const PtxInstruction &i, const PtxOperand &operand);
  void load_or_store (const PtxInstruction &i);
  void convert (const PtxInstruction &i);
  uint64_t integer (const PtxInstruction &i);
  uint64_t real (const PtxInstruction &i);
  bool holds (const PtxInstruction &i);
  void shuffle (const PtxInstruction &i);
  void change_at_once (const PtxInstruction &i);
  void move (const PtxInstruction &i);
  void step (const PtxInstruction &i);
  void refuse (const std::string &text);
  uint64_t
  in (const PtxInstruction &i, unsigned operand)
  {
    return value (i, i.operands[operand]);
  }
};

void
Run::refuse (const std::string &text)
{
  why = text;
  is_fine = false;
  is_done = true;
}

uint64_t
special (uint64_t number)
{
  const unsigned values[] = { threadIdx.x, threadIdx.y, threadIdx.z,      blockDim.x, blockDim.y,
                              blockDim.z,  blockIdx.x,  blockIdx.y,       blockIdx.z, gridDim.x,
                              gridDim.y,   gridDim.z,   threadIdx.x % 32, 32 };

  return values[number];
}

uint64_t
Run::value (const PtxInstruction &i, const PtxOperand &operand)
{
  switch (operand.form)
    {
    case PtxOperand::REGISTER:
      return operand.is_negated ? !registers[(size_t)operand.reg] : registers[(size_t)operand.reg];
    case PtxOperand::NUMBER:
      return operand.number;
    case PtxOperand::SPECIAL:
      return special (operand.number);
    case PtxOperand::SYMBOL:
      return operand.space == PtxSpace::SHARED ? operand.number
                                               : (uint64_t)(uintptr_t)address (i, operand);
    default:
      refuse ("reads an operand of another kind: " + i.text);
      return 0;
    }
}

void
Run::set (const PtxOperand &operand, uint64_t value, unsigned bytes)
{
  if (operand.form == PtxOperand::REGISTER)
    registers[(size_t)operand.reg] = low (value, bytes);
}

uint8_t *
Run::address (const PtxInstruction &i, const PtxOperand &operand)
{
  switch (operand.space)
    {
    case PtxSpace::REGISTER:
      {
        const uint64_t at = registers[(size_t)operand.reg] + operand.number;

        /* Shared memory has addresses of its own, of 32 bits. */
        return i.has (PTX_SHARED) ? shared + (uint32_t)at : (uint8_t *)(uintptr_t)at;
      }
    case PtxSpace::PARAMETERS:
      return (uint8_t *)parameters + operand.number;
    case PtxSpace::SHARED:
      return shared + operand.number;
    case PtxSpace::LOCAL:
      return local.data () + operand.number;
    default:
      refuse ("uses a variable that is not there: " + i.text);
      return local.data ();
    }
}

/* Declares an access to memory that others see, as for a kernel on the fake device. */
void
declare (void *at, size_t bytes, bool is_write)
{
  static void (*const hooks[5][2]) (void *at) = { { __tsan_read1, __tsan_write1 },
                                                  { __tsan_read2, __tsan_write2 },
                                                  { __tsan_read4, __tsan_write4 },
                                                  { __tsan_read8, __tsan_write8 },
                                                  { __tsan_read16, __tsan_write16 } };

  trace_threads (true);
  hooks[__builtin_ctzll (bytes)][is_write](at);
  trace_threads (false);
}

void
Run::load_or_store (const PtxInstruction &i)
{
  const bool is_store = i.code == ST;
  const PtxOperand &memory = i.operands[is_store ? 0 : 1], &data = i.operands[is_store ? 1 : 0];
  const unsigned bytes = i.type.bytes, n = (unsigned)i.vector;
  uint8_t *at = address (i, memory);

  if (!is_fine)
    return;
  const bool is_own = i.has (PTX_OWN);
  if (!is_own)
    declare (at, bytes * n, is_store);
  for (unsigned part = 0; part < n; part++)
    {
      const PtxOperand &operand = n > 1 ? data.parts[part] : data;
      uint64_t word = is_store ? value (i, operand) : 0;

      for (unsigned byte = 0; byte < bytes; byte++)
        if (is_store)
          at[part * bytes + byte] = (uint8_t)(word >> 8 * byte);
        else
          word |= (uint64_t)at[part * bytes + byte] << 8 * byte;
      if (!is_store)
        set (operand, i.type.kind == Kind::SIGNED ? (uint64_t)extended (word, bytes) : word, 8);
    }
}

/* --- conversions -------------------------------------------------------------------------- */

void
Run::convert (const PtxInstruction &i)
{
  const PtxType &out = i.from,
                &source = i.type; /* the destination's type comes first in the text */
  const uint64_t bits = in (i, 1);
  const PlanDtype made = format_of (out.kind), read = format_of (source.kind);

  if (made != PLAN_N_DTYPES
      && read != PLAN_N_DTYPES) /* a pair of a small format to a pair of f16 */
    {
      const uint64_t first = narrow (made, widen (read, bits & 0xff));
      const uint64_t second = narrow (made, widen (read, bits >> 8 & 0xff));

      set (i.operands[0], second << 16 | first, 4);
    }
  else if (made != PLAN_N_DTYPES) /* the first operand is the upper half */
    {
      const unsigned each = 4u * out.bytes;
      const uint64_t upper = narrow (made, as<float> (bits));

      set (i.operands[0], upper << each | narrow (made, as<float> (in (i, 2))), out.bytes);
    }
  else if (source.kind == Kind::FLOAT && out.kind == Kind::FLOAT)
    {
      const double given = source.bytes == 2   ? (double)widen (PLAN_DTYPE_FP16, bits)
                           : source.bytes == 4 ? (double)as<float> (bits)
                                               : as<double> (bits);
      const double value = i.has (PTX_RNI) ? nearbyint (given) : given;

      if (i.has (PTX_SAT))
        set (i.operands[0], as<uint64_t, float> (value > 0 ? fminf ((float)value, 1) : 0), 4);
      else if (out.bytes == 2)
        set (i.operands[0], narrow (PLAN_DTYPE_FP16, (float)value), 2);
      else
        set (i.operands[0],
             out.bytes == 4 ? as<uint64_t, float> ((float)value) : as<uint64_t, double> (value),
             out.bytes);
    }
  else if (out.kind == Kind::FLOAT)
    {
      const bool is_signed = source.kind == Kind::SIGNED;
      const int64_t whole = extended (bits, source.bytes);
      const uint64_t natural = low (bits, source.bytes);

      if (out.bytes == 4)
        set (i.operands[0], as<uint64_t, float> (is_signed ? (float)whole : (float)natural), 4);
      else
        set (i.operands[0], as<uint64_t, double> (is_signed ? (double)whole : (double)natural), 8);
    }
  else if (source.kind == Kind::FLOAT)
    {
      const double value = source.bytes == 4 ? (double)as<float> (bits) : as<double> (bits);
      const double whole = i.has (PTX_RNI) ? nearbyint (value) : trunc (value);
      const double most = ldexp (1, 8 * out.bytes - (out.kind == Kind::SIGNED));
      const double least = out.kind == Kind::SIGNED ? -most : 0;

      if (!(whole >= least && whole < most))
        refuse ("converts what the integer has no room for: " + i.text);
      else
        set (i.operands[0], out.kind == Kind::SIGNED ? (uint64_t)(int64_t)whole : (uint64_t)whole,
             out.bytes);
    }
  else
    set (i.operands[0],
         source.kind == Kind::SIGNED ? (uint64_t)extended (bits, source.bytes)
                                     : low (bits, source.bytes),
         out.bytes);
}

/* --- arithmetic --------------------------------------------------------------------------- */

uint64_t
Run::integer (const PtxInstruction &i)
{
  const unsigned bytes = i.type.bytes;
  const bool is_signed = i.type.kind == Kind::SIGNED;
  const uint64_t a = in (i, 1), b = i.operands.size () > 2 ? in (i, 2) : 0;
  const int64_t x = extended (a, bytes), y = extended (b, bytes);
  const uint64_t u = low (a, bytes), v = low (b, bytes);

  switch (i.code)
    {
    case AND:
      return a & b;
    case OR:
      return a | b;
    case XOR:
      return a ^ b;
    case NOT:
      return i.type.kind == Kind::PREDICATE ? !a : ~a;
    case SHL: /* a shift by more than all bits leaves 0 */
      return (uint32_t)b >= 8 * bytes ? 0 : u << (uint32_t)b;
    case SHR:
      if (is_signed)
        return (uint64_t)(x >> std::min<uint32_t> ((uint32_t)b, 8 * bytes - 1));
      return (uint32_t)b >= 8 * bytes ? 0 : u >> (uint32_t)b;
    case ADD:
      return a + b;
    case SUB:
      return a - b;
    case MUL:
    case MAD:
      {
        const unsigned __int128 product
            = is_signed ? (unsigned __int128)((__int128)x * y) : (unsigned __int128)u * v;
        const uint64_t part = i.has (PTX_HI) ? (uint64_t)(product >> 8 * bytes) : (uint64_t)product;

        return i.code == MUL ? part : part + in (i, 3);
      }
    case DIV:
    case REM:
      if (v == 0)
        {
          refuse ("divides by 0: " + i.text);
          return 0;
        }
      if (is_signed)
        return (uint64_t)(i.code == DIV ? x / y : x % y);
      return i.code == DIV ? u / v : u % v;
    case MIN:
      return is_signed ? (uint64_t)std::min (x, y) : std::min (u, v);
    case MAX:
      return is_signed ? (uint64_t)std::max (x, y) : std::max (u, v);
    case NEG:
      return (uint64_t)-x;
    case ABS:
      return (uint64_t)(x < 0 ? -x : x);
    default:
      refuse ("is an instruction without this type: " + i.text);
      return 0;
    }
}

/* An operation on real numbers, rounded as the instruction says. */
template <typename T>
T
calculate (const PtxInstruction &i, T a, T b, T c, bool &is_there)
{
  switch (i.code)
    {
    case ADD:
      return a + b;
    case SUB:
      return a - b;
    case MUL:
      return a * b;
    case DIV:
      return a / b;
    case FMA:
      return std::fma (a, b, c);
    case RCP:
      return 1 / a;
    case SQRT:
      return std::sqrt (a);
    case NEG:
      return -a;
    case ABS:
      return std::fabs (a);
    case MIN: /* of a number and a NaN the number; -0 is less than 0 */
      return a == b ? (std::signbit (a) ? a : b) : std::fmin (a, b);
    case MAX:
      return a == b ? (std::signbit (a) ? b : a) : std::fmax (a, b);
    case COPYSIGN: /* the first operand gives the sign */
      return std::copysign (b, a);
    case EX2:
      return std::exp2 (a);
    default:
      is_there = false;
      return 0;
    }
}

template <typename T>
T
flushed (const PtxInstruction &i, T value)
{
  return i.has (PTX_FTZ) && std::fpclassify (value) == FP_SUBNORMAL ? std::copysign ((T)0, value)
                                                                    : value;
}

uint64_t
Run::real (const PtxInstruction &i)
{
  const int mode = i.has (PTX_RZ) ? FE_TOWARDZERO : i.has (PTX_RM) ? FE_DOWNWARD : FE_TONEAREST;
  const bool is_of_bits = i.code == NEG || i.code == ABS || i.code == COPYSIGN;
  uint64_t words[3] = { 0, 0, 0 };
  bool is_there = true;
  volatile double wide[4]; /* volatile: computed under the rounding mode that is set here */
  volatile float single[4];

  for (unsigned n = 1; n < i.operands.size () && n < 4; n++)
    words[n - 1] = in (i, n);
  for (unsigned n = 0; n < 3; n++)
    {
      wide[n] = as<double> (words[n]);
      single[n] = flushed (i, as<float> (words[n]));
    }
  fesetround (mode);
  if (i.type.bytes == 8)
    wide[3] = calculate<double> (i, wide[0], wide[1], wide[2], is_there);
  else
    single[3] = calculate<float> (i, single[0], single[1], single[2], is_there);
  fesetround (FE_TONEAREST);
  if (!is_there)
    refuse ("is an instruction without this type: " + i.text);
  if (i.type.bytes == 8)
    return as<uint64_t, double> (wide[3]);
  return !is_of_bits && std::isnan (single[3])
             ? CANONICAL_NAN
             : as<uint64_t, float> (flushed (i, (float)single[3]));
}

/* --- comparisons -------------------------------------------------------------------------- */

/* Compares; "hi", "hs", "lo" and "ls" are for unsigned numbers. */
template <typename T>
bool
compares (const PtxInstruction &i, T a, T b, bool is_unordered)
{
  const char first = i.how[0], second = i.how[1];

  if (is_unordered)
    return i.has (PTX_UNORDERED);
  if (first == 'e' || first == 'n')
    return (a == b) == (first == 'e');
  if (second == 'e' || second == 's')
    return first == 'l' ? a <= b : a >= b;
  return first == 'l' ? a < b : a > b;
}

bool
Run::holds (const PtxInstruction &i)
{
  const uint64_t a = in (i, 1), b = in (i, 2);
  const unsigned bytes = i.type.bytes;

  if (i.words.size () != 2 || i.operands.size () != 3)
    refuse ("compares in a way that is not there: " + i.text);
  if (i.type.kind == Kind::FLOAT)
    {
      const double x = bytes == 4 ? (double)as<float> (a) : as<double> (a);
      const double y = bytes == 4 ? (double)as<float> (b) : as<double> (b);
      const bool is_unordered = std::isnan (x) || std::isnan (y);

      if (i.how[1] == 'u') /* num: whether both are numbers */
        return !is_unordered;
      return compares (i, x, y, is_unordered);
    }
  if (i.type.kind == Kind::SIGNED)
    return compares (i, extended (a, bytes), extended (b, bytes), false);
  return compares (i, low (a, bytes), low (b, bytes), false);
}

/* --- with other threads ------------------------------------------------------------------- */

/* Shuffles. Operands: out, value, lane or distance, bounds, mask. A warp whose threads diverge is
 * not supported here. */
void
Run::shuffle (const PtxInstruction &i)
{
  const unsigned lane = threadIdx.x % 32, given = (unsigned)in (i, 2);
  const char how = i.how[0]; /* bfly, down, up, idx */
  const uint64_t bounds = in (i, 3);
  const unsigned source = how == 'b'   ? lane ^ given
                          : how == 'd' ? lane + given
                          : how == 'u' ? lane - given
                                       : given % 32;
  const bool is_within = source < 32;

  if (bounds != (how == 'u' ? 0u : 31u))
    {
      refuse ("shuffles parts of a warp: " + i.text);
      return;
    }
  const uint32_t got = fake_cuda_shuffle ((int)next, (uint32_t)in (i, 4), (uint32_t)in (i, 1),
                                          is_within ? source : lane);
  trace_threads (false);
  set (i.operands[0], got, 4);
  if (i.operands[0].second >= 0)
    registers[(size_t)i.operands[0].second] = is_within;
}

void
Run::change_at_once (const PtxInstruction &i)
{
  uint8_t *at = address (i, i.operands[1]);
  const unsigned bytes = i.type.bytes;
  const uint64_t given = low (in (i, 2), bytes);
  uint64_t old = 0, changed = 0;

  fake_cuda_begin_atomic ();
  declare (at, bytes, true);
  __builtin_memcpy (&old, at, bytes == 8 ? 8 : 4);
  if (i.has (PTX_ADD))
    changed = old + given;
  else if (i.has (PTX_MAX) && i.type.kind == Kind::UNSIGNED)
    changed = std::max (old, given);
  else if (i.has (PTX_MAX) && i.type.kind == Kind::SIGNED)
    changed = extended (old, bytes) > extended (given, bytes) ? old : given;
  else
    refuse ("is an atomic operation that is not there: " + i.text);
  __builtin_memcpy (at, &changed, bytes == 8 ? 8 : 4);
  fake_cuda_end_atomic ();
  set (i.operands[0], old, bytes);
}

/* --- the rest ----------------------------------------------------------------------------- */

/* Moves one register, or joins or splits several that make up a wider one. */
void
Run::move (const PtxInstruction &i)
{
  const PtxOperand &to = i.operands[0], &from = i.operands[1];

  if (to.form == PtxOperand::VECTOR)
    {
      const unsigned each = (unsigned)(i.type.bytes / to.parts.size ());
      uint64_t word = value (i, from);

      for (const PtxOperand &part : to.parts)
        {
          set (part, word, each);
          word >>= 8 * each;
        }
    }
  else if (from.form == PtxOperand::VECTOR)
    {
      const unsigned each = (unsigned)(i.type.bytes / from.parts.size ());
      uint64_t word = 0;

      for (size_t part = from.parts.size (); part-- > 0;)
        word = word << 8 * each | low (value (i, from.parts[part]), each);
      set (to, word, i.type.bytes);
    }
  else
    set (to, value (i, from), i.type.bytes);
}

/* Picks bytes of b:a by the digits of a number; the highest bit of a digit asks for copies of the
 * byte's sign. */
uint64_t
permute (uint64_t a, uint64_t b, uint64_t digits)
{
  const uint64_t all = low (b, 4) << 32 | low (a, 4);
  uint64_t out = 0;

  for (unsigned n = 0; n < 4; n++)
    {
      const unsigned digit = digits >> 4 * n & 0xf;
      uint64_t byte = all >> 8 * (digit & 7) & 0xff;

      if (digit & 8)
        byte = byte >> 7 ? 0xff : 0;
      out |= byte << 8 * n;
    }
  return out;
}

/* Puts `length` bits of `a` into `b` at `position`. */
uint64_t
insert_bits (uint64_t a, uint64_t b, uint64_t position, uint64_t length)
{
  const uint64_t mask = (length >= 64 ? ~UINT64_C (0) : (UINT64_C (1) << length) - 1);

  return position >= 64 ? b : (b & ~(mask << position)) | (a & mask) << position;
}

void
Run::step (const PtxInstruction &i)
{
  const unsigned bytes = i.has (PTX_WIDE) ? 2u * i.type.bytes : i.type.bytes;

  if (i.guard >= 0 && (registers[(size_t)i.guard] != 0) == i.is_guard_negated)
    return;
  switch (i.code)
    {
    case MOV:
      return move (i);
    case CVTA: /* generic addresses are those of the memory itself */
      return set (i.operands[0], in (i, 1), 8);
    case LD:
    case ST:
      return load_or_store (i);
    case CVT:
      return convert (i);
    case BRA:
      next = i.target;
      return;
    case RET:
      is_done = true;
      return;
    case BAR:
      if (i.has (PTX_WARP))
        fake_cuda_sync_warp ((int)next);
      else
        fake_cuda_barrier ((int)next);
      return trace_threads (false);
    case SHFL:
      return shuffle (i);
    case ATOM:
      return change_at_once (i);
    case PREFETCH:
      return;
    case SETP:
      return set (i.operands[0], holds (i), 1);
    case SELP:
      return set (i.operands[0], in (i, 3) ? in (i, 1) : in (i, 2), bytes);
    case PRMT:
      return set (i.operands[0], permute (in (i, 1), in (i, 2), in (i, 3)), 4);
    case BFI:
      return set (i.operands[0], insert_bits (in (i, 1), in (i, 2), in (i, 3), in (i, 4)), bytes);
    case CALL:
      return refuse ("calls a function: " + i.text);
    default:
      set (i.operands[0], i.type.kind == Kind::FLOAT ? real (i) : integer (i), bytes);
    }
}

}

int
ptx_code (const PtxInstruction &instruction)
{
  for (int code = 0; code < N_CODES; code++)
    if (instruction.words[0] == code_names[code])
      return code;
  return -1;
}

bool
ptx_run (const PtxKernel &kernel, const uint8_t *parameters, uint8_t *shared, std::string &why)
{
  Run run = { kernel,
              parameters,
              shared,
              std::vector<uint64_t> ((size_t)kernel.n_registers),
              std::vector<uint8_t> (kernel.local_bytes + 16),
              why };

  while (!run.is_done && run.next < kernel.code.size ())
    run.step (kernel.code[run.next++]);
  return run.is_fine;
}

}
