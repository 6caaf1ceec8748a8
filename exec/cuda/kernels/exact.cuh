/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums (exec/number/exact.h) on the device: integers alone, so that neither the order of the
 * terms nor the grid can change a bit, and a sum is the CPU's bit for bit.
 *
 * The value is the sum of limb[i] * 2^(32 i - 298); the last two limbs take what is carried out of
 * the others, and count the terms that are not numbers. Limbs are signed; adding them as unsigned
 * gives the same bits. */
#pragma once
#include "exec/cuda/kernels/launch.cuh"
#include "exec/number/exact.h"

namespace
{

enum : unsigned
{
  LIMBS = EXEC_EXACT_LIMBS,
  CARRY = LIMBS - 2, /* the limb that takes what others carry out */
  NANS = LIMBS - 1,  /* the limb that counts terms that are not numbers */
  LIMB_BITS = 32,
  POINT = 298,      /* the first limb counts in 2^-298, the square of the smallest float */
  FLOAT_POINT = 149 /* the smallest float is 2^-149 */
};

typedef unsigned long long Limb;

const Limb LIMB_MASK = 0xffffffff;

__device__ inline bool
is_number (uint32_t word)
{
  return (word >> 23 & 0xff) != 0xff;
}

/* For a finite float, |value| = mantissa * 2^(exponent - 149). */
__device__ inline Limb
mantissa_of (uint32_t word)
{
  return (word & 0x7fffffu) | (word >> 23 & 0xff ? 0x800000u : 0);
}

__device__ inline unsigned
exponent_of (uint32_t word)
{
  unsigned exponent = word >> 23 & 0xff;

  return exponent > 0 ? exponent - 1 : 0;
}

/* Adds a term to a sum to which other threads add at the same time. */
__device__ inline void
exact_add_float (Limb *sum, float value)
{
  uint32_t word = word_of (value);

  if (!is_number (word))
    {
      atomicAdd (sum + NANS, (Limb)1);
      return;
    }

  unsigned shift = exponent_of (word) + POINT - FLOAT_POINT;
  Limb *limb = sum + shift / LIMB_BITS;
  Limb mantissa = mantissa_of (word) << shift % LIMB_BITS;
  Limb low = mantissa & LIMB_MASK, high = mantissa >> LIMB_BITS;
  bool is_negative = word >> 31 != 0;

  atomicAdd (limb, is_negative ? -low : low);
  atomicAdd (limb + 1, is_negative ? -high : high);
}

/* Carries between limbs, as exec_exact_merge does. */
__device__ inline void
exact_carry (Limb *sum)
{
  long long carry = 0;

  for (unsigned i = 0; i < CARRY; i++)
    {
      long long mine = (long long)sum[i];
      long long low = (mine & (long long)LIMB_MASK) + (carry & (long long)LIMB_MASK);

      sum[i] = (Limb)low & LIMB_MASK;
      carry = (mine >> LIMB_BITS) + (carry >> LIMB_BITS) + (low >> LIMB_BITS);
    }
  sum[CARRY] += (Limb)carry;
}

/* The double nearest to a carried sum, as exec_exact_value gives it. The sum is overwritten. */
__device__ inline double
exact_value (Limb *sum)
{
  bool is_negative = (long long)sum[CARRY] < 0;
  unsigned top = CARRY, bits = 0;
  Limb head, tail = 0;

  if (sum[NANS] != 0)
    return (double)NAN;
  if (is_negative)
    {
      for (unsigned i = 0; i <= CARRY; i++)
        sum[i] = -sum[i];
      exact_carry (sum);
    }
  while (top > 0 && sum[top] == 0)
    top--;
  head = sum[top];
  if (head == 0)
    return 0;

  /* The first 64 bits of the value. Of what follows it only matters whether it is zero. */
  while (head >> bits > 1)
    bits++;
  bits++;
  head <<= 64 - bits;
  int exponent = (int)(LIMB_BITS * top + bits) - (int)POINT - 64;
  for (unsigned i = 1; i <= top; i++)
    {
      Limb limb = sum[top - i];
      int at = 64 - (int)bits - (int)(LIMB_BITS * i); /* where the limb's lowest bit belongs */

      if (at >= 0)
        head |= limb << at;
      else if (at > -(int)LIMB_BITS)
        {
          head |= limb >> -at;
          tail |= limb << (64 + at);
        }
      else
        tail |= limb;
    }
  double value = ldexp ((double)(head | (tail != 0)), exponent);
  return is_negative ? -value : value;
}

}
