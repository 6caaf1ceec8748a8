/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/exact.h"

#include <math.h>
#include <string.h>

/* The value is the sum of limb[i] * 2^(32 i - 298): 2^-298 is the square of the smallest float. The
 * largest square is below 2^256, so terms reach limbs 0 to 17; CARRY takes what is carried out of
 * them. NANS counts the terms that are not numbers: counts of merged sums add up and never return
 * to 0. */
#define LIMB_BITS 32
#define LIMB_MASK G_GINT64_CONSTANT (0xffffffff)
#define LOWEST_EXPONENT (-298)
#define CARRY (EXEC_EXACT_LIMBS - 2)
#define NANS (EXEC_EXACT_LIMBS - 1)

/* |value| = mantissa * 2^(exponent - 149); FALSE for NaN and infinity. */
static gboolean
split (float value, guint64 *out_mantissa, guint *out_exponent)
{
  guint32 word, exponent;

  memcpy (&word, &value, sizeof word);
  exponent = word >> 23 & 0xff;
  if (exponent == 0xff)
    return FALSE;
  *out_mantissa = (word & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0);
  *out_exponent = exponent > 0 ? exponent - 1 : 0;
  return TRUE;
}

void
exec_exact_add_float (ExecExact *self, float value)
{
  guint64 mantissa;
  guint exponent;

  if (!split (value, &mantissa, &exponent))
    {
      self->limb[NANS]++;
      return;
    }

  guint shift = exponent - 149 - LOWEST_EXPONENT;
  gint64 *limb = self->limb + shift / LIMB_BITS;
  gint64 sign = signbit (value) ? -1 : 1;

  mantissa <<= shift % LIMB_BITS;
  limb[0] += sign * (gint64)(mantissa & LIMB_MASK);
  limb[1] += sign * (gint64)(mantissa >> LIMB_BITS);
}

void
exec_exact_add_square (ExecExact *self, float value)
{
  guint64 mantissa;
  guint exponent;

  if (!split (value, &mantissa, &exponent))
    {
      self->limb[NANS]++;
      return;
    }

  guint shift = 2 * exponent;
  gint64 *limb = self->limb + shift / LIMB_BITS;
  guint64 square = mantissa * mantissa; /* 48 bits, shifted over three limbs */
  guint64 above = square >> (LIMB_BITS - shift % LIMB_BITS);

  limb[0] += (gint64)(square << shift % LIMB_BITS & LIMB_MASK);
  limb[1] += (gint64)(above & LIMB_MASK);
  limb[2] += (gint64)(above >> LIMB_BITS);
}

void
exec_exact_merge (ExecExact *self, const ExecExact *other)
{
  gint64 carry = 0;

  /* Limbs are carried on the way, so that a merged sum has its whole room for additions again. */
  for (guint i = 0; i < CARRY; i++)
    {
      gint64 low = (self->limb[i] & LIMB_MASK) + (other->limb[i] & LIMB_MASK) + (carry & LIMB_MASK);
      gint64 high
          = (self->limb[i] >> LIMB_BITS) + (other->limb[i] >> LIMB_BITS) + (carry >> LIMB_BITS);

      self->limb[i] = low & LIMB_MASK;
      carry = high + (low >> LIMB_BITS);
    }
  self->limb[CARRY] += other->limb[CARRY] + carry;
  self->limb[NANS] += other->limb[NANS];
}

/* Turns the value into its opposite; its limbs are carried and it is not 0. */
static void
negate (ExecExact *self)
{
  ExecExact zero = { 0 };

  for (guint i = 0; i <= CARRY; i++)
    self->limb[i] = -self->limb[i];
  exec_exact_merge (self, &zero);
}

double
exec_exact_value (const ExecExact *self)
{
  ExecExact sum = { 0 };
  guint top = CARRY, bits;
  guint64 head, tail = 0;

  if (self->limb[NANS] != 0)
    return NAN;
  exec_exact_merge (&sum, self);
  gboolean is_negative = sum.limb[CARRY] < 0;
  if (is_negative)
    negate (&sum);

  while (top > 0 && sum.limb[top] == 0)
    top--;
  head = (guint64)sum.limb[top];
  if (head == 0)
    return 0;

  /* The first 64 bits of the value; whatever follows only matters as "not zero". */
  bits = 64 - (guint)__builtin_clzll (head);
  head <<= 64 - bits;
  int exponent = LOWEST_EXPONENT + LIMB_BITS * (int)top + (int)bits - 64;
  for (guint i = 1; i <= top; i++)
    {
      guint64 limb = (guint64)sum.limb[top - i];
      int at = 64 - (int)bits - LIMB_BITS * (int)i; /* where the limb's lowest bit belongs */

      if (at >= 0)
        head |= limb << at;
      else if (at > -LIMB_BITS)
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
